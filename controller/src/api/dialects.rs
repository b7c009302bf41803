//! Routes of other servers: status codes and headers of each dialect.
//!
//! SandboxFusion's clients try again after 504 alone, so overload is 504 there, and a failure of ours is a body that
//! says so. Piston's take any other status than 200 for a failure, with `{"message": …}`.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;

use super::body::{self, BodyError};
use super::{Api, Problem};
use crate::dialects::sandbox_fusion::{Decoded, Overloaded, RunCodeRequest, RunCodeResponse, RunStatus};
use crate::dialects::submit::{SubmitRequest, SubmitResponse};
use crate::dialects::{Dialect, Outcome, Refusal, Server, Terms, piston, tampering};
use crate::job::{Finished, Job};
use crate::sandbox::SubmitError;
use crate::service::VerifyError;

/// Limits in force for the run.
const LIMITS: HeaderName = HeaderName::from_static("x-rlox-limits");
/// What was seen of attempts to cheat.
const TAMPERING: HeaderName = HeaderName::from_static("x-rlox-tampering");

/// A JSON string, as the original sends it.
#[utoipa::path(get, path = "/v1/ping", tag = "dialects", security(()), responses((status = 200, body = String)))]
pub(super) async fn ping() -> Json<&'static str> {
    Json("pong")
}

impl Api {
    fn count(&self, dialect: Dialect, outcome: Outcome) {
        self.service.metrics.dialects.request(dialect, outcome);
    }

    fn seen(&self, dialect: Dialect, finished: &Finished) -> String {
        self.service.metrics.dialects.seen(dialect, finished);
        let kinds = tampering(finished);
        if !kinds.is_empty() {
            tracing::debug!(job = finished.job_id, dialect = dialect.word(), ?kinds, "tampering was seen");
        }
        kinds.join(",")
    }
}

/// Adds what the dialect's body has no place for.
fn with_headers(mut response: Response, terms: &Terms, seen: &str) -> Response {
    for (name, text) in [(LIMITS, terms.header().as_str()), (TAMPERING, seen)] {
        if let (false, Ok(value)) = (text.is_empty(), HeaderValue::from_str(text)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid(detail) => Self::unprocessable(detail),
            Refusal::TooLarge(detail) => Self::too_large(detail),
            Refusal::Fault(detail) => Self::fault(detail),
        }
    }
}

const BUSY: &str = "there was no answer in time; try again";

/// The job keeps what its request was granted, however long it waits.
fn hold(job: &mut Job, room: &Arc<OwnedSemaphorePermit>) {
    if let Some(script) = &mut job.script {
        script.room = Some(Arc::clone(room));
    }
}

/// A response of SandboxFusion's dialect, with what there is for headers.
struct RunCode {
    response: RunCodeResponse,
    terms: Terms,
    seen: String,
}

impl Api {
    fn refused(&self, problem: Problem) -> Response {
        self.count(Dialect::SandboxFusion, Outcome::Refused);
        problem.into_response()
    }

    fn busy(&self) -> Response {
        self.count(Dialect::SandboxFusion, Outcome::Overload);
        Problem::busy_gateway(BUSY).into_response()
    }

    /// Reads a body of SandboxFusion's dialect, or answers.
    async fn decoded<B, T>(
        &self,
        request: Request,
        decode: impl FnOnce(B) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<(T, OwnedSemaphorePermit), Response>
    where
        B: DeserializeOwned,
        T: Send + 'static,
    {
        match body::read(&self.bodies, request, move |body| Ok(decode(body.json()?))).await {
            Ok((Ok(decoded), room)) => Ok((decoded, room)),
            Ok((Err(refusal), _)) => Err(self.refused(refusal.into())),
            Err(BodyError::Wrong(problem)) => Err(self.refused(problem)),
            Err(BodyError::NoRoom) => Err(self.busy()),
        }
    }

    /// Runs one program; an error is the answer of an overloaded server.
    async fn run(&self, decoded: Decoded, room: &Arc<OwnedSemaphorePermit>) -> Result<RunCode, Response> {
        let dialect = Dialect::SandboxFusion;
        let (mut job, frame) = decoded.split();
        hold(&mut job, room);
        let (response, seen) = match self.service.run_script(job, frame.answer_by).await {
            Ok(finished) => {
                let seen = self.seen(dialect, &finished);
                match RunCodeResponse::new(finished, &frame) {
                    Ok(response) => (response, seen),
                    Err(Overloaded) => return Err(with_headers(self.busy(), &frame.terms, &seen)),
                }
            }
            Err(VerifyError::Submit(SubmitError::Full | SubmitError::Late | SubmitError::Closed)) => {
                return Err(self.busy());
            }
            Err(VerifyError::Sandbox(error)) => {
                tracing::error!(%error, "a run has no result");
                (RunCodeResponse::sandbox_error(error.to_string()), String::new())
            }
        };
        let outcome = match response.status {
            RunStatus::Success => Outcome::Success,
            RunStatus::Failed => Outcome::Failed,
            RunStatus::SandboxError => Outcome::Fault,
        };
        self.count(dialect, outcome);
        Ok(RunCode { response, terms: frame.terms, seen })
    }
}

/// SandboxFusion's call: runs one program. Every run that has a result is 200.
#[utoipa::path(
    post,
    path = "/run_code",
    tag = "dialects",
    request_body = RunCodeRequest,
    responses(
        (status = 200, body = RunCodeResponse),
        (status = "4XX", body = Problem, content_type = "application/problem+json"),
        (status = 504, description = "Overloaded: try again.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn run_code(State(api): State<Api>, request: Request) -> Result<Response, Response> {
    let (server, received) = (Server::of(&api.service.config), Instant::now());
    let decode = move |body: RunCodeRequest| body.decode(&server, received);
    let (decoded, room) = api.decoded(request, decode).await?;
    let RunCode { response, terms, seen } = api.run(decoded, &Arc::new(room)).await?;
    Ok(with_headers(Json(response).into_response(), &terms, &seen))
}

/// SandboxFusion's call: runs a program on the cases of a data set.
#[utoipa::path(
    post,
    path = "/submit",
    tag = "dialects",
    request_body = SubmitRequest,
    responses(
        (status = 200, body = SubmitResponse),
        (status = "4XX", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn submit(State(api): State<Api>, request: Request) -> Result<Response, Response> {
    let server = Server::of(&api.service.config);
    let (submission, room) = api.decoded(request, SubmitRequest::decode).await?;
    let room = Arc::new(room);
    let count = submission.runs();
    let mut tests = Vec::with_capacity(count);
    for index in 0..count {
        let decoded = submission.run(index, &server).map_err(|refusal| api.refused(refusal.into()))?;
        let RunCode { response, .. } = api.run(decoded, &room).await?;
        if let Some(message) = response.fault() {
            // One case without a result leaves all of it without one.
            return Err(Problem::fault(message).into_response());
        }
        let result = submission.judge(index, response);
        let go_on = result.passed || submission.run_all;
        tests.push(result);
        if !go_on {
            break;
        }
    }
    Ok(Json(submission.answer(tests)).into_response())
}

/// An error as Piston has them.
fn message(status: StatusCode, text: &str) -> Response {
    (status, Json(json!({ "message": text }))).into_response()
}

/// Piston's call: runs one program with files and arguments.
#[utoipa::path(
    post,
    path = "/api/v2/execute",
    tag = "dialects",
    request_body = piston::ExecuteRequest,
    responses(
        (status = 200, body = piston::ExecuteResponse),
        (status = "4XX", description = "An object with `message`.", body = Object),
        (status = 503, description = "An object with `message`.", body = Object),
    )
)]
pub(super) async fn execute(State(api): State<Api>, request: Request) -> Response {
    let dialect = Dialect::Piston;
    let refused = |problem: Problem| {
        api.count(dialect, Outcome::Refused);
        // Its own word for a wrong request is 400.
        let status = match problem.status() {
            StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
            status => status,
        };
        message(status, problem.detail())
    };
    let failed = |outcome: Outcome, status: StatusCode, text: &str| {
        api.count(dialect, outcome);
        message(status, text)
    };
    let (server, received) = (Server::of(&api.service.config), Instant::now());
    let version = api.service.environment.home.python_version("snippet");
    let decode = move |body: body::Parsed| {
        Ok(body.json::<piston::ExecuteRequest>()?.decode(&server, &version, received))
    };
    let (decoded, room) = match body::read(&api.bodies, request, decode).await {
        Ok((Ok(decoded), room)) => (decoded, room),
        Ok((Err(refusal), _)) => return refused(refusal.into()),
        Err(BodyError::Wrong(problem)) => return refused(problem),
        Err(BodyError::NoRoom) => return failed(Outcome::Overload, StatusCode::TOO_MANY_REQUESTS, BUSY),
    };
    let (mut job, frame) = decoded.split();
    hold(&mut job, &Arc::new(room));
    let finished = match api.service.run_script(job, frame.answer_by).await {
        Ok(finished) => finished,
        Err(VerifyError::Submit(SubmitError::Full | SubmitError::Late)) => {
            return failed(Outcome::Overload, StatusCode::TOO_MANY_REQUESTS, BUSY);
        }
        Err(VerifyError::Submit(SubmitError::Closed)) => {
            return failed(
                Outcome::Overload,
                StatusCode::SERVICE_UNAVAILABLE,
                "the service is shutting down",
            );
        }
        Err(VerifyError::Sandbox(error)) => {
            tracing::error!(%error, "a run has no result");
            return failed(Outcome::Fault, StatusCode::SERVICE_UNAVAILABLE, &error.to_string());
        }
    };
    let seen = api.seen(dialect, &finished);
    let response = match piston::ExecuteResponse::new(finished, &frame) {
        Ok(response) => {
            api.count(dialect, if response.good() { Outcome::Success } else { Outcome::Failed });
            Json(response).into_response()
        }
        Err(none) if none.overloaded => {
            failed(Outcome::Overload, StatusCode::TOO_MANY_REQUESTS, &none.message)
        }
        Err(none) => failed(Outcome::Fault, StatusCode::SERVICE_UNAVAILABLE, &none.message),
    };
    with_headers(response, &frame.terms, &seen)
}

/// Piston's list of languages.
#[utoipa::path(get, path = "/api/v2/runtimes", tag = "dialects", responses((status = 200, body = Vec<piston::Runtime>)))]
pub(super) async fn runtimes(State(api): State<Api>) -> Json<Vec<piston::Runtime>> {
    Json(piston::runtimes(&api.service.environment.home.python_version("snippet")))
}
