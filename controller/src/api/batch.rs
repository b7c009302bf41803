//! `POST /verify/batch`: many snippets in one call, group-relative advantages on request.
//!
//! The answer is one document in the order of the requests, or, where the client asks for lines, each result as soon
//! as it is there. Either way the batch lives in its answer: a client that leaves takes with it what has not begun.

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use utoipa::ToSchema;

use super::verify::{VerifyRequest, VerifyResponse};
use super::{Api, Problem};

/// Most snippets of one batch.
const MAX_REQUESTS: usize = 4096;
/// One JSON document a line.
const LINES: &str = "application/x-ndjson";

/// The request body.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchRequest {
    requests: Vec<VerifyRequest>,
    group_size: Option<usize>,
}

/// The response body.
#[derive(Debug, Serialize, ToSchema)]
struct BatchResponse {
    results: Vec<Entry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advantages: Option<Vec<f64>>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = BatchEntry)]
enum Entry {
    Verdict(Box<VerifyResponse>),
    Problem { error: Problem, reward: Option<f64> },
}

impl Entry {
    fn lost() -> Self {
        Self::Problem { error: Problem::fault("the job was lost"), reward: None }
    }

    fn reward(&self) -> Option<f64> {
        match self {
            Self::Verdict(response) => response.reward,
            Self::Problem { reward, .. } => *reward,
        }
    }
}

/// A line of a streamed answer.
#[derive(Debug, Serialize)]
struct Line<'a> {
    index: usize,
    #[serde(flatten)]
    entry: &'a Entry,
}

/// The last line.
#[derive(Debug, Serialize)]
struct Done {
    done: bool,
    count: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    advantages: Option<Vec<f64>>,
}

/// A batch that runs. Dropping it drops the jobs that no worker has taken.
struct Running {
    tasks: JoinSet<(usize, Entry)>,
    rewards: Vec<Option<f64>>,
    /// Entries that were handed out.
    seen: Vec<bool>,
    group_size: Option<usize>,
    _permit: OwnedSemaphorePermit,
}

impl Running {
    fn start(api: &Api, body: BatchRequest) -> Result<Self, Problem> {
        let BatchRequest { requests, group_size } = body;
        if requests.len() > MAX_REQUESTS {
            return Err(Problem::unprocessable(format!(
                "{} requests; at most {MAX_REQUESTS} in one batch",
                requests.len()
            )));
        }
        if group_size.is_some_and(|size| size == 0 || requests.len() % size != 0) {
            let detail = format!("group_size has to divide the number of requests, {}", requests.len());
            return Err(Problem::unprocessable(detail));
        }
        let permit = api.batches.clone().try_acquire_owned();
        let permit = permit.map_err(|_| Problem::busy("too many batches at once"))?;
        // All are checked before any runs: a batch with a malformed entry costs nothing.
        let jobs: Vec<_> = requests
            .into_iter()
            .map(|request| request.into_job(&api.service.config.ceilings))
            .collect::<Result<_, _>>()?;
        let count = jobs.len();
        let mut tasks = JoinSet::new();
        for (index, job) in jobs.into_iter().enumerate() {
            let service = api.service.clone();
            tasks.spawn(async move {
                let entry = match service.verify_batched(job).await {
                    Ok(finished) => {
                        Entry::Verdict(Box::new(VerifyResponse::new(finished, &service.environment)))
                    }
                    Err(error) => Entry::Problem { error: error.into(), reward: None },
                };
                (index, entry)
            });
        }
        Ok(Self { tasks, rewards: vec![None; count], seen: vec![false; count], group_size, _permit: permit })
    }

    /// The next result, whichever is finished first; each entry once, then none.
    async fn next(&mut self) -> Option<(usize, Entry)> {
        while let Some(done) = self.tasks.join_next().await {
            let Ok((index, entry)) = done else { continue };
            if let (Some(reward), Some(seen)) = (self.rewards.get_mut(index), self.seen.get_mut(index)) {
                (*reward, *seen) = (entry.reward(), true);
            }
            return Some((index, entry));
        }
        let lost = self.seen.iter().position(|seen| !seen)?;
        self.seen[lost] = true;
        Some((lost, Entry::lost()))
    }

    fn advantages(&self) -> Result<Option<Vec<f64>>, Problem> {
        self.group_size.map(|size| advantages(&self.rewards, size)).transpose()
    }

    async fn document(mut self) -> Result<BatchResponse, Problem> {
        let mut results: Vec<Option<Entry>> =
            std::iter::repeat_with(|| None).take(self.rewards.len()).collect();
        while let Some((index, entry)) = self.next().await {
            if let Some(slot) = results.get_mut(index) {
                *slot = Some(entry);
            }
        }
        let advantages = self.advantages()?;
        let results = results.into_iter().map(|entry| entry.unwrap_or_else(Entry::lost)).collect();
        Ok(BatchResponse { results, advantages })
    }

    /// The next line; the last one says that it is the last, so that an answer that was cut is seen to be.
    async fn line(mut self) -> Option<(Result<Bytes, serde_json::Error>, Option<Self>)> {
        if let Some((index, entry)) = self.next().await {
            return Some((line(&Line { index, entry: &entry }), Some(self)));
        }
        let last = match self.advantages() {
            Ok(advantages) => line(&Done { done: true, count: self.rewards.len(), advantages }),
            Err(error) => line(&Entry::Problem { error, reward: None }),
        };
        Some((last, None))
    }
}

fn line<T: Serialize>(value: &T) -> Result<Bytes, serde_json::Error> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    Ok(text.into())
}

/// Whether the client accepts lines, in so many words.
fn wants_lines(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let named = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case(LINES));
        let refused = |part: &str| {
            let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
            weight.is_some_and(|weight| weight.parse().is_ok_and(|weight: f64| weight <= 0.0))
        };
        named && !parts.any(refused)
    })
}

/// Many snippets, answers in their order; with `Accept: application/x-ndjson` a line for each as soon as it is there,
/// then one with `done`.
#[utoipa::path(
    post,
    path = "/verify/batch",
    tag = "verification",
    request_body = BatchRequest,
    responses(
        (status = 200, content((BatchResponse = "application/json"), (String = "application/x-ndjson"))),
        (status = "4XX", body = Problem, content_type = "application/problem+json"),
        (status = 503, body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn batch(
    State(api): State<Api>,
    headers: HeaderMap,
    body: Result<Json<BatchRequest>, JsonRejection>,
) -> Result<Response, Problem> {
    let Json(body) = body?;
    let running = Running::start(&api, body)?;
    if !wants_lines(&headers) {
        return Ok(Json(running.document().await?).into_response());
    }
    let lines = unfold(Some(running), async |running| running?.line().await);
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static(LINES));
    Ok(([kind], Body::from_stream(lines)).into_response())
}

/// Advantages within each group by `rlox-rl-ops`. A sample without a reward is no part of its group's baseline
/// and has advantage 0.
fn advantages(rewards: &[Option<f64>], size: usize) -> Result<Vec<f64>, Problem> {
    let mut all = Vec::with_capacity(rewards.len());
    for group in rewards.chunks(size) {
        let known: Vec<f64> = group.iter().copied().flatten().collect();
        let computed = match known.len() {
            0 => Vec::new(),
            count => rlox_rl_ops::compute_batch_group_advantages(&known, count)
                .map_err(|error| Problem::fault(error.to_string()))?,
        };
        let mut computed = computed.into_iter();
        all.extend(group.iter().map(|reward| reward.and_then(|_| computed.next()).unwrap_or(0.0)));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_without_a_reward_are_outside_the_baseline() {
        assert_eq!(advantages(&[Some(1.0), None, Some(0.0), None], 4).unwrap(), [1.0, 0.0, -1.0, 0.0]);
        assert_eq!(advantages(&[None, None], 2).unwrap(), [0.0, 0.0]);
    }

    #[test]
    fn groups_are_normalised_apart() {
        let rewards = [Some(1.0), Some(0.0), Some(1.0), Some(1.0)];
        assert_eq!(advantages(&rewards, 2).unwrap(), [1.0, -1.0, 0.0, 0.0]);
    }

    #[test]
    fn lines_are_sent_to_those_who_name_them() {
        let wants = |value: &'static str| {
            wants_lines(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(value))]))
        };
        for yes in ["application/x-ndjson", "application/json;q=0.5, Application/X-NDJSON; q=0.9"] {
            assert!(wants(yes), "{yes}");
        }
        for no in ["*/*", "application/json", "application/*", "application/x-ndjson;q=0", ""] {
            assert!(!wants(no), "{no}");
        }
        assert!(!wants_lines(&HeaderMap::new()));
    }

    #[test]
    fn a_line_holds_its_index_beside_the_result() {
        let entry = Entry::lost();
        let text = line(&Line { index: 3, entry: &entry }).unwrap();
        assert!(text.ends_with(b"}\n") && text.iter().filter(|byte| **byte == b'\n').count() == 1);
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(
            (&value["index"], &value["error"]["status"], &value["reward"]),
            (&3.into(), &503.into(), &serde_json::Value::Null)
        );
    }
}
