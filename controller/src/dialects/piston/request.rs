//! From a request to a job, in the original's units and with its words for what is wrong.

use std::time::{Duration, Instant};

use serde::Deserialize;
use utoipa::ToSchema;

use crate::dialects::{Refusal, Server, Terms, files, languages};
use crate::job::{Job, random_id};
use crate::script::Script;

/// Limits in milliseconds of requests that name none, as with the original.
const RUN_TIMEOUT_MS: f64 = 3000.0;
/// A client that hears nothing for 30 seconds gives up.
const PATIENCE: Duration = Duration::from_secs(28);
/// Time for everything but the program, where a client grants it longer.
const BESIDE: Duration = Duration::from_secs(5);
const MAX_ARGUMENTS: usize = 256;
const MAX_ARGUMENT_BYTES: usize = 64 << 10;

/// The request body. Fields that are not here are ignored, as the original does.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = PistonRequest)]
pub(crate) struct ExecuteRequest {
    language: String,
    version: String,
    files: Vec<File>,
    #[serde(default)]
    stdin: Option<String>,
    #[serde(default)]
    args: Option<Vec<String>>,
    run_timeout: Option<f64>,
    run_cpu_time: Option<f64>,
    run_memory_limit: Option<f64>,
    // Nothing is compiled; what they hold has to be numbers all the same.
    compile_timeout: Option<f64>,
    compile_cpu_time: Option<f64>,
    compile_memory_limit: Option<f64>,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = PistonFile)]
struct File {
    name: Option<String>,
    content: String,
    encoding: Option<String>,
}

/// A decoded request.
pub(crate) type Decoded = crate::dialects::Decoded<Frame>;

/// What is needed to answer it.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) terms: Terms,
    pub(crate) answer_by: Instant,
    pub(super) language: &'static str,
    pub(super) version: String,
}

/// A limit as the original takes it: absent, zero or a number up to the server's own, in its words.
fn limit(name: &str, asked: Option<f64>, most: f64) -> Result<Option<f64>, Refusal> {
    match asked {
        None => Ok(None),
        Some(value) if value.is_nan() || value < 0.0 && !name.ends_with("memory_limit") => {
            Refusal::invalid(format!("{name} must be non-negative"))
        }
        // Piston's own way to say that there is no limit.
        Some(value) if value <= 0.0 => Ok(None),
        Some(value) if value > most => {
            Refusal::invalid(format!("{name} cannot exceed the configured limit of {most}"))
        }
        Some(value) => Ok(Some(value)),
    }
}

fn millis(value: f64) -> Duration {
    Duration::try_from_secs_f64(value / 1000.0).unwrap_or_default().max(Duration::from_millis(10))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive number below the server's limit on memory"
)]
fn mebibytes(bytes: f64) -> u64 {
    (bytes / f64::from(1 << 20)).ceil() as u64
}

#[expect(clippy::cast_precision_loss, reason = "a limit on memory")]
fn bytes(mebibytes: u64) -> f64 {
    (mebibytes << 20) as f64
}

impl ExecuteRequest {
    /// The job of a server whose Python has this version.
    pub(crate) fn decode(
        self,
        server: &Server,
        version: &str,
        received: Instant,
    ) -> Result<Decoded, Refusal> {
        let language = languages::of_piston(&self.language, &self.version, version)?;
        let most = server.timeout.as_secs_f64() * 1000.0;
        for (name, asked) in
            [("compile_timeout", self.compile_timeout), ("compile_cpu_time", self.compile_cpu_time)]
        {
            limit(name, asked, f64::INFINITY)?;
        }
        limit("compile_memory_limit", self.compile_memory_limit, f64::INFINITY)?;
        let run = limit("run_timeout", self.run_timeout, most)?.unwrap_or(RUN_TIMEOUT_MS.min(most));
        let cpu = limit("run_cpu_time", self.run_cpu_time, most)?.map(millis);
        let memory = limit("run_memory_limit", self.run_memory_limit, bytes(server.ceilings.memory_mb))?;
        let memory_mb = memory.map_or(server.ceilings.memory_mb, mebibytes);
        let timeout = millis(run);
        let patience = PATIENCE.max(timeout + BESIDE);
        let answer_by = received + patience;
        let arguments = self.args.unwrap_or_default();
        let argument_bytes: usize = arguments.iter().map(String::len).sum();
        if arguments.len() > MAX_ARGUMENTS || argument_bytes > MAX_ARGUMENT_BYTES {
            return Err(Refusal::TooLarge(format!(
                "{} args with {argument_bytes} bytes; at most {MAX_ARGUMENTS} with {MAX_ARGUMENT_BYTES}",
                arguments.len()
            )));
        }
        let (name, code, files) = program(self.files)?;
        let stdin = self.stdin.unwrap_or_default();
        let script = Script {
            name,
            arguments,
            exits: server.exits(&stdin),
            stdin,
            files: files::placed(files)?,
            wanted: Vec::new(),
            cpu,
            answer_by,
            room: None,
        };
        let terms = Terms::exactly(server, timeout, memory_mb, patience);
        let job = Job {
            id: random_id().map_err(|error| Refusal::Fault(error.to_string()))?,
            code,
            tests: Vec::new(),
            stdio: Vec::new(),
            early_stop: false,
            granted: terms.granted(),
            script: Some(script),
        };
        let frame = Frame { terms, answer_by, language: language.piston, version: version.to_owned() };
        Ok(Decoded { job, frame })
    }
}

/// The name and text of the program, which is the first file in UTF-8, and all files with their bytes.
type Program = (String, String, Vec<(String, Vec<u8>)>);

fn program(files: Vec<File>) -> Result<Program, Refusal> {
    let mut first = None;
    let mut all = Vec::with_capacity(files.len());
    for (index, File { name, content, encoding }) in files.into_iter().enumerate() {
        let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| format!("file{index}.code"));
        let bytes = match encoding.as_deref() {
            Some("base64") => files::from_base64(&name, &content)?,
            Some("hex") => files::from_hex(&name, &content)?,
            // Whatever else it says, as with the original.
            Some(_) | None => {
                if first.is_none() {
                    first = Some((files::relative(&name)?, content.clone()));
                }
                content.into_bytes()
            }
        };
        all.push((name, bytes));
    }
    let missing = || Refusal::Invalid("files must include at least one utf8 encoded file".into());
    let (name, code) = first.ok_or_else(missing)?;
    Ok((name, code, all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialects::testing::server;
    use crate::script::Exits;

    fn decode(body: &serde_json::Value) -> Result<Decoded, String> {
        let request: ExecuteRequest =
            serde_json::from_value(body.clone()).map_err(|error| error.to_string())?;
        request.decode(&server(), "3.11.2", Instant::now()).map_err(|error| error.to_string())
    }

    fn with(more: &serde_json::Value) -> serde_json::Value {
        let mut body =
            serde_json::json!({"language": "python", "version": "*", "files": [{"content": "print(1)"}]});
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        body
    }

    #[test]
    fn units_and_defaults_are_the_originals() {
        let decoded = decode(&with(&serde_json::json!({}))).unwrap();
        assert_eq!(
            (decoded.job.granted.timeout, decoded.job.granted.memory_mb),
            (Duration::from_secs(3), 2048)
        );
        let decoded = decode(&with(&serde_json::json!({
            "run_timeout": 8000, "run_cpu_time": 2000, "run_memory_limit": 268_435_456u64, "compile_timeout": 60000,
            "stdin": "x", "args": ["-v"]
        })))
        .unwrap();
        let limits = decoded.job.limits();
        assert_eq!((limits.wall_ms, limits.cpu_ms, limits.memory_bytes), (8000, 2000, 256 << 20));
        let script = decoded.job.script.unwrap();
        assert_eq!((script.name.as_str(), script.exits), ("file0.code", Exits::Anywhere));
        assert_eq!(script.arguments, ["-v"]);
        let unlimited =
            decode(&with(&serde_json::json!({ "run_memory_limit": -1, "run_timeout": 0 }))).unwrap();
        assert_eq!(unlimited.job.granted.memory_mb, 2048);
    }

    #[test]
    fn the_first_file_in_utf_8_is_the_program() {
        let decoded = decode(&with(&serde_json::json!({"files": [
            {"name": "data.bin", "content": "AAE=", "encoding": "base64"},
            {"name": "d/run.py", "content": "x = 1", "encoding": "utf8"},
            {"name": "h", "content": "ff", "encoding": "hex"}
        ]})))
        .unwrap();
        assert_eq!(decoded.job.code, "x = 1");
        let script = decoded.job.script.unwrap();
        assert_eq!(script.name, "d/run.py");
        let contents: Vec<_> = script.files.iter().map(|file| file.content.as_slice()).collect();
        assert_eq!(contents, [&b"\0\x01"[..], b"x = 1", b"\xff"]);
    }

    #[test]
    fn wrong_requests_are_refused_in_the_originals_words() {
        for (more, why) in [
            (serde_json::json!({ "language": "cms_ioi" }), "cms_ioi-* runtime is unknown"),
            (serde_json::json!({ "version": "2" }), "python-2 runtime is unknown"),
            (serde_json::json!({ "files": [] }), "at least one utf8 encoded file"),
            (
                serde_json::json!({ "run_timeout": 31000 }),
                "run_timeout cannot exceed the configured limit of 30000",
            ),
            (serde_json::json!({ "run_memory_limit": 1e12 }), "run_memory_limit cannot exceed"),
            (serde_json::json!({ "run_cpu_time": -1 }), "run_cpu_time must be non-negative"),
            (serde_json::json!({ "files": [{"name": "../x", "content": ""}] }), "leads out"),
            (serde_json::json!({ "args": ["x".repeat(70_000)] }), "args"),
        ] {
            let error = decode(&with(&more)).unwrap_err();
            assert!(error.contains(why), "{more}: {error}");
        }
    }
}
