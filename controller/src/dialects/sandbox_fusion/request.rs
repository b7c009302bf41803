//! From a request to a job, and how long its client waits.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Deserialize;
use utoipa::ToSchema;

use crate::dialects::languages::{self, Language};
use crate::dialects::limits::{RESERVE, SLACK, seconds};
use crate::dialects::{Refusal, Server, Terms, files};
use crate::job::{Job, random_id};
use crate::script::Script;

/// The request body. Fields that are not here are ignored, as the original does.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub(crate) struct RunCodeRequest {
    pub(crate) code: String,
    pub(crate) language: String,
    #[serde(default = "ten")]
    pub(crate) compile_timeout: f64,
    #[serde(default = "ten")]
    pub(crate) run_timeout: f64,
    #[serde(default = "unlimited", rename = "memory_limit_MB")]
    pub(crate) memory_limit_mb: Option<i64>,
    #[serde(default)]
    pub(crate) stdin: Option<String>,
    #[serde(default)]
    pub(crate) files: BTreeMap<String, Option<String>>,
    #[serde(default)]
    pub(crate) fetch_files: Vec<String>,
}

fn ten() -> f64 {
    10.0
}

fn unlimited() -> Option<i64> {
    Some(-1)
}

/// A decoded request.
pub(crate) type Decoded = crate::dialects::Decoded<Frame>;

/// What is needed to answer it.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) terms: Terms,
    pub(crate) answer_by: Instant,
    /// The paths of `fetch_files` as the client wrote them.
    pub(super) fetch_files: Vec<String>,
}

impl RunCodeRequest {
    /// A program with its input and default limits.
    pub(crate) fn of(language: &Language, code: String, stdin: String, run_timeout: f64) -> Self {
        Self {
            code,
            language: language.sandbox_fusion.to_owned(),
            compile_timeout: ten(),
            run_timeout,
            memory_limit_mb: unlimited(),
            stdin: Some(stdin),
            files: BTreeMap::new(),
            fetch_files: Vec::new(),
        }
    }

    /// The job. The client waits for both timeouts and ten seconds more.
    pub(crate) fn decode(self, server: &Server, received: Instant) -> Result<Decoded, Refusal> {
        let language = languages::of_sandbox_fusion(&self.language)?;
        let timeout = seconds("run_timeout", self.run_timeout)?;
        let compile = Duration::try_from_secs_f64(self.compile_timeout).unwrap_or_default();
        let patience = (timeout + compile.min(Duration::from_secs(600)) + SLACK).saturating_sub(RESERVE);
        // Not positive is no limit there; here it is the server's own.
        let memory_mb = match self.memory_limit_mb {
            Some(asked) => u64::try_from(asked).ok().filter(|asked| *asked > 0),
            None => None,
        };
        let answer_by = received + patience;
        let terms = Terms::lowered(server, timeout, memory_mb.unwrap_or(server.ceilings.memory_mb), patience);
        let named = self.files.into_iter().filter_map(|(name, content)| Some((name, content?)));
        let decoded = named.map(|(name, content)| Ok((files::from_base64(&name, &content)?, name)));
        let decoded: Vec<_> = decoded.collect::<Result<_, Refusal>>()?;
        let stdin = self.stdin.unwrap_or_default();
        let script = Script {
            name: language.file.to_owned(),
            arguments: Vec::new(),
            exits: server.exits(&stdin),
            stdin,
            files: files::placed(decoded.into_iter().map(|(content, name)| (name, content)))?,
            wanted: files::wanted(&self.fetch_files)?,
            cpu: None,
            answer_by,
            room: None,
        };
        let job = Job {
            id: random_id().map_err(|error| Refusal::Fault(error.to_string()))?,
            code: self.code,
            tests: Vec::new(),
            stdio: Vec::new(),
            early_stop: false,
            granted: terms.granted(),
            script: Some(script),
        };
        Ok(Decoded { job, frame: Frame { terms, answer_by, fetch_files: self.fetch_files } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialects::testing::server;
    use crate::script::Exits;

    fn decode(text: &str) -> Result<Decoded, String> {
        let request: RunCodeRequest = serde_json::from_str(text).map_err(|error| error.to_string())?;
        request.decode(&server(), Instant::now()).map_err(|error| error.to_string())
    }

    #[test]
    fn verls_request_is_taken_as_it_is() {
        let decoded = decode(
            r#"{"compile_timeout": 10, "run_timeout": 10, "code": "print(1)", "stdin": "3\n", "memory_limit_MB": 1024,
            "language": "python", "files": {}, "fetch_files": []}"#,
        )
        .unwrap();
        let (granted, script) = (decoded.job.granted, decoded.job.script.unwrap());
        assert_eq!((granted.timeout, granted.memory_mb), (Duration::from_secs(10), 1024));
        assert_eq!((script.stdin.as_str(), script.exits), ("3\n", Exits::Anywhere));
        let waits = script.answer_by - Instant::now();
        assert!(waits > Duration::from_secs(27) && waits <= Duration::from_secs(28), "{waits:?}");
    }

    #[test]
    fn defaults_null_and_unknown_fields_are_as_in_the_original() {
        let decoded = decode(
            r#"{"code": "x", "language": "python", "stdin": null, "files": {"skipped": null, "d/a": "AA=="}, "args": []}"#,
        )
        .unwrap();
        assert_eq!(
            (decoded.job.granted.timeout, decoded.job.granted.memory_mb),
            (Duration::from_secs(10), 2048)
        );
        let script = decoded.job.script.unwrap();
        assert_eq!((script.stdin.as_str(), script.exits), ("", Exits::Last));
        assert_eq!(script.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["d/a"]);
    }

    #[test]
    fn wrong_requests_are_refused_with_a_reason() {
        for (bad, why) in [
            (r#"{"language": "python"}"#, "code"),
            (r#"{"code": "x"}"#, "language"),
            (r#"{"code": "x", "language": "cpp"}"#, "this server runs: python"),
            (r#"{"code": "x", "language": "python", "run_timeout": 0}"#, "run_timeout"),
            (r#"{"code": "x", "language": "python", "files": {"../a": ""}}"#, "leads out"),
            (r#"{"code": "x", "language": "python", "files": {"a": "%"}}"#, "not base64"),
            (r#"{"code": "x", "language": "python", "fetch_files": ["/etc/passwd"]}"#, "absolute"),
        ] {
            let error = decode(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}
