//! `POST /verify/batch`: many snippets in one call, answers in order, group-relative advantages on request.

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::verify::{VerifyRequest, VerifyResponse};
use super::{Api, Problem};

/// Most snippets of one batch.
const MAX_REQUESTS: usize = 4096;

/// The request body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchRequest {
    requests: Vec<VerifyRequest>,
    group_size: Option<usize>,
}

/// The response body.
#[derive(Debug, Serialize)]
pub(super) struct BatchResponse {
    results: Vec<Entry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advantages: Option<Vec<f64>>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Entry {
    Verdict(Box<VerifyResponse>),
    Problem { error: Problem, reward: Option<f64> },
}

impl Entry {
    fn reward(&self) -> Option<f64> {
        match self {
            Self::Verdict(response) => response.reward,
            Self::Problem { reward, .. } => *reward,
        }
    }
}

pub(super) async fn batch(
    State(api): State<Api>,
    body: Result<Json<BatchRequest>, JsonRejection>,
) -> Result<Json<BatchResponse>, Problem> {
    let Json(BatchRequest { requests, group_size }) = body?;
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
    let _permit = api.batches.try_acquire().map_err(|_| Problem::busy("too many batches at once"))?;
    // All are checked before any runs: a batch with a malformed entry costs nothing.
    let jobs: Vec<_> = requests
        .into_iter()
        .map(|request| request.into_job(&api.service.config.ceilings))
        .collect::<Result<_, _>>()?;
    let count = jobs.len();
    let mut tasks = JoinSet::new();
    for (index, job) in jobs.into_iter().enumerate() {
        let service = api.service.clone();
        tasks.spawn(async move { (index, service.verify_batched(job).await) });
    }
    let mut results: Vec<Option<Entry>> = std::iter::repeat_with(|| None).take(count).collect();
    while let Some(done) = tasks.join_next().await {
        let Ok((index, result)) = done else { continue };
        let entry = match result {
            Ok(finished) => Entry::Verdict(Box::new(VerifyResponse::new(finished, &api.service.environment))),
            Err(error) => Entry::Problem { error: error.into(), reward: None },
        };
        if let Some(slot) = results.get_mut(index) {
            *slot = Some(entry);
        }
    }
    let missing = || Entry::Problem { error: Problem::fault("the job was lost"), reward: None };
    let results: Vec<Entry> = results.into_iter().map(|entry| entry.unwrap_or_else(missing)).collect();
    let advantages = group_size.map(|size| advantages(&results, size)).transpose()?;
    Ok(Json(BatchResponse { results, advantages }))
}

/// Advantages within each group by `rlox-rl-ops`. A sample without a reward is no part of its group's baseline
/// and has advantage 0.
fn advantages(results: &[Entry], size: usize) -> Result<Vec<f64>, Problem> {
    let mut all = Vec::with_capacity(results.len());
    for group in results.chunks(size) {
        let known: Vec<f64> = group.iter().filter_map(Entry::reward).collect();
        let computed = match known.len() {
            0 => Vec::new(),
            count => rlox_rl_ops::compute_batch_group_advantages(&known, count)
                .map_err(|error| Problem::fault(error.to_string()))?,
        };
        let mut computed = computed.into_iter();
        all.extend(group.iter().map(|entry| entry.reward().and_then(|_| computed.next()).unwrap_or(0.0)));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown() -> Entry {
        Entry::Problem { error: Problem::busy("x"), reward: None }
    }

    fn known(reward: f64) -> Entry {
        Entry::Problem { error: Problem::busy("x"), reward: Some(reward) }
    }

    #[test]
    fn samples_without_a_reward_are_outside_the_baseline() {
        let group = [known(1.0), unknown(), known(0.0), unknown()];
        assert_eq!(advantages(&group, 4).unwrap(), [1.0, 0.0, -1.0, 0.0]);
        assert_eq!(advantages(&[unknown(), unknown()], 2).unwrap(), [0.0, 0.0]);
    }

    #[test]
    fn groups_are_normalised_apart() {
        let rewards = [known(1.0), known(0.0), known(1.0), known(1.0)];
        assert_eq!(advantages(&rewards, 2).unwrap(), [1.0, -1.0, 0.0, 0.0]);
    }
}
