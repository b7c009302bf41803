//! `POST /verify`: one snippet, one verdict.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Api, Problem};
use crate::config::{
    Ceilings, DEFAULT_MEMORY_MB, DEFAULT_OUTPUT_BYTES, DEFAULT_PIDS, Granted, MIN_MEMORY_MB, MIN_PIDS,
};
use crate::job::{Finished, Job, StdioTest, random_id};
use crate::judge::{TestResult, Verdict};
use crate::sandbox::Environment;
use crate::tampering::Tampering;

/// Most test statements and stdio runs of one request.
const MAX_TESTS: usize = 10_000;
const MAX_STDIO: usize = 200;

/// The request body.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VerifyRequest {
    code: String,
    #[serde(default)]
    tests: Vec<String>,
    #[serde(default)]
    stdio: Vec<StdioEntry>,
    timeout_secs: Option<f64>,
    memory_mb: Option<u64>,
    pids: Option<u64>,
    output_bytes: Option<u64>,
    #[serde(default)]
    early_stop: bool,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct StdioEntry {
    stdin: String,
    stdout: String,
}

impl VerifyRequest {
    /// A request with default limits.
    pub(crate) fn new(code: String, tests: Vec<String>) -> Self {
        let (timeout_secs, memory_mb, pids, output_bytes) = (None, None, None, None);
        let (stdio, early_stop) = (Vec::new(), false);
        Self { code, tests, stdio, timeout_secs, memory_mb, pids, output_bytes, early_stop }
    }

    /// Checks the request against the ceilings. Limits above them are refused, not clipped: a client that asked
    /// for 60 seconds must not take a verdict after 5 for its own.
    pub(crate) fn into_job(self, ceilings: &Ceilings) -> Result<Job, Problem> {
        let over = |name: &str, asked: String, range: String| {
            Problem::unprocessable(format!("{name} is {asked}; this server grants {range}"))
        };
        let ceiling = ceilings.timeout.as_secs_f64();
        let timeout = self.timeout_secs.unwrap_or(ceiling);
        if !(timeout >= 0.01 && timeout <= ceiling) {
            return Err(over("timeout_secs", timeout.to_string(), format!("0.01 to {ceiling}")));
        }
        let within = |name: &str, asked: Option<u64>, default: u64, least: u64, most: u64| {
            let value = asked.unwrap_or(default.min(most));
            if (least..=most).contains(&value) {
                return Ok(value);
            }
            Err(over(name, value.to_string(), format!("{least} to {most}")))
        };
        let granted = Granted {
            timeout: Duration::from_secs_f64(timeout),
            wall_factor: ceilings.wall_factor,
            memory_mb: within(
                "memory_mb",
                self.memory_mb,
                DEFAULT_MEMORY_MB,
                MIN_MEMORY_MB,
                ceilings.memory_mb,
            )?,
            pids: within("pids", self.pids, DEFAULT_PIDS, MIN_PIDS, ceilings.pids)?,
            output_bytes: within(
                "output_bytes",
                self.output_bytes,
                DEFAULT_OUTPUT_BYTES,
                0,
                ceilings.output_bytes,
            )?,
        };
        if self.tests.len() > MAX_TESTS || self.stdio.len() > MAX_STDIO {
            let detail = format!("at most {MAX_TESTS} tests and {MAX_STDIO} stdio entries in one request");
            return Err(Problem::unprocessable(detail));
        }
        if self.tests.iter().any(|statement| statement.contains('\0')) {
            return Err(Problem::unprocessable(
                "a test statement holds a NUL character, which no Python source may",
            ));
        }
        let id = random_id().map_err(|error| Problem::fault(error.to_string()))?;
        let stdio = self
            .stdio
            .into_iter()
            .map(|entry| StdioTest { stdin: entry.stdin, stdout: entry.stdout })
            .collect();
        Ok(Job {
            id,
            code: self.code,
            tests: self.tests,
            stdio,
            early_stop: self.early_stop,
            granted,
            script: None,
        })
    }
}

/// The response body.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct VerifyResponse {
    id: String,
    pub(crate) verdict: Verdict,
    pub(crate) reward: Option<f64>,
    exit_status: String,
    authenticated: bool,
    tests: Vec<TestResult>,
    stdout: String,
    stderr: String,
    stdout_truncated: bool,
    stderr_truncated: bool,
    usage: UsageBody,
    containment: Containment,
    tampering: Vec<Tampering>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct UsageBody {
    queue_secs: f64,
    setup_secs: f64,
    wall_secs: f64,
    cpu_secs: f64,
    memory_peak_bytes: u64,
    pids_peak: u64,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct Containment {
    tier: &'static str,
    limits: LimitsBody,
    events: EventsBody,
    leftovers: u64,
    pressure: bool,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct LimitsBody {
    timeout_secs: f64,
    wall_secs: f64,
    memory_mb: u64,
    pids: u64,
    output_bytes: u64,
    cpus: f64,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct EventsBody {
    oom_kill: u64,
    pids_max: u64,
    seccomp: u64,
    cpu_wait_secs: f64,
    retries: u64,
}

impl VerifyResponse {
    /// Every test passed, or there was none and the program completed.
    pub(crate) fn good(&self) -> bool {
        matches!(self.verdict, Verdict::Passed | Verdict::Completed)
    }

    /// Encodes a finished job.
    pub(crate) fn new(finished: Finished, environment: &Environment) -> Self {
        let Finished { job_id, granted, judged, usage, events, stdout, stderr, ran: _ } = finished;
        Self {
            id: job_id,
            verdict: judged.verdict,
            reward: judged.reward,
            exit_status: judged.exit_status,
            authenticated: judged.authenticated,
            tests: judged.tests,
            stdout: stdout.text,
            stderr: stderr.text,
            stdout_truncated: stdout.truncated,
            stderr_truncated: stderr.truncated,
            usage: UsageBody {
                queue_secs: usage.queue_secs,
                setup_secs: usage.setup_secs,
                wall_secs: usage.wall_secs,
                cpu_secs: usage.cpu_secs,
                memory_peak_bytes: usage.memory_peak_bytes,
                pids_peak: usage.pids_peak,
            },
            containment: Containment {
                tier: environment.isolation.tier,
                limits: LimitsBody {
                    timeout_secs: granted.timeout.as_secs_f64(),
                    wall_secs: granted.wall_most().as_secs_f64(),
                    memory_mb: granted.memory_mb,
                    pids: granted.pids,
                    output_bytes: granted.output_bytes,
                    cpus: 1.0,
                },
                events: EventsBody {
                    oom_kill: events.oom_kill,
                    pids_max: events.pids_max,
                    seccomp: events.seccomp,
                    cpu_wait_secs: events.cpu_wait_secs,
                    retries: events.retries,
                },
                leftovers: events.leftovers,
                pressure: events.pressure,
            },
            tampering: judged.tampering,
        }
    }
}

/// One snippet, one verdict. Every verdict is 200; a failure of ours is 503 with `reward` null.
#[utoipa::path(
    post,
    path = "/verify",
    tag = "verification",
    request_body = VerifyRequest,
    responses(
        (status = 200, body = VerifyResponse),
        (status = "4XX", body = Problem, content_type = "application/problem+json"),
        (status = 503, body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn verify(
    State(api): State<Api>,
    body: Result<Json<VerifyRequest>, JsonRejection>,
) -> Result<Json<VerifyResponse>, Problem> {
    let Json(request) = body?;
    let job = request.into_job(&api.service.config.ceilings)?;
    let finished = api.service.verify(job).await?;
    Ok(Json(VerifyResponse::new(finished, &api.service.environment)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Job, String> {
        let request: VerifyRequest = serde_json::from_str(text).map_err(|error| error.to_string())?;
        request.into_job(&Ceilings::default()).map_err(|problem| format!("{problem:?}"))
    }

    #[test]
    fn only_code_is_required_and_defaults_are_the_contracts() {
        let job = parse(r#"{"code": "x = 1"}"#).unwrap();
        assert_eq!(
            job.granted,
            Granted {
                timeout: Duration::from_secs(5),
                wall_factor: 4.0,
                memory_mb: 512,
                pids: 64,
                output_bytes: 65_536
            }
        );
    }

    #[test]
    fn unknown_fields_and_limits_beyond_the_ceilings_are_refused() {
        for bad in [
            r#"{"code": "", "timeout": 1}"#,
            r#"{"tests": []}"#,
            r#"{"code": "", "timeout_secs": 5.1}"#,
            r#"{"code": "", "timeout_secs": 0}"#,
            r#"{"code": "", "timeout_secs": null, "memory_mb": 100000}"#,
            r#"{"code": "", "pids": 1}"#,
            r#"{"code": "", "output_bytes": 99999999}"#,
            r#"{"code": "", "early_stop": 1}"#,
            r#"{"code": "", "early_stop": null}"#,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
