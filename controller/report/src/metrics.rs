//! `metrics.jsonl`: one JSON object a step. A run that is killed leaves half a line; hostile code leaves
//! anything. What is not a step is counted, not trusted and not fatal.

use crate::json;
use crate::model::Problem;

/// Longer lines are not steps; parsing them would only cost memory.
const LINE_LIMIT_BYTES: usize = 64 * 1024;
/// Most steps kept of one trial.
const ROW_LIMIT: usize = 20_000;
/// Most snippets of one step, and the longest name of one.
const ID_LIMIT: usize = 256;
const ID_LIMIT_BYTES: usize = 128;
/// RFC 3339 with milliseconds and an offset is shorter.
const TIME_LIMIT_BYTES: usize = 40;
/// A step number beyond this is no step.
const STEP_LIMIT: u64 = 1_000_000_000;

/// One training step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MetricsRow {
    /// Its number.
    pub step: u64,
    /// Mean reward of all samples, adversarial ones included.
    pub reward: Option<f64>,
    /// Mean reward of the model's own samples.
    pub reward_clean: Option<f64>,
    /// Policy entropy.
    pub entropy: Option<f64>,
    /// Divergence from the reference policy.
    pub kl: Option<f64>,
    /// GPU utilisation in percent; absent where none was sampled.
    pub gpu_util: Option<f64>,
    /// Wall-clock seconds of the whole step.
    pub step_time_secs: Option<f64>,
    /// Wall-clock seconds of it that went to verification.
    pub verify_secs: Option<f64>,
    /// Resident memory of the trainer.
    pub vm_rss_bytes: Option<u64>,
    /// Open descriptors of the trainer.
    pub open_fds: Option<u64>,
    /// Threads of the trainer.
    pub threads: Option<u64>,
    /// Child processes of the trainer.
    pub children: Option<u64>,
    /// Adversarial samples in this step.
    pub injected: Option<u64>,
    /// Samples without a verdict, left out of the update.
    pub masked: Option<u64>,
    /// Adversarial samples that got a positive reward.
    pub forged: Option<u64>,
    /// When it ended, as the trainer wrote it.
    pub timestamp: Option<String>,
    /// Which snippets of the corpus were injected in this step.
    pub injected_ids: Vec<String>,
}

impl MetricsRow {
    /// From one line of the file; `None` where it is no step.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        parse_row(line)
    }
}

/// The steps of one trial and what else its file held.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metrics {
    /// In the file's order.
    pub rows: Vec<MetricsRow>,
    /// Complete lines that are not a step.
    pub garbage_lines: u64,
    /// The last line has no end and is not a step: the writer died in it.
    pub truncated_tail: bool,
    /// The file is larger than is read, or holds more steps than are kept.
    pub cut: bool,
    /// The file could not be read at all.
    pub problem: Option<Problem>,
}

impl Metrics {
    /// From a file's bytes; `cut` where the file goes on after them.
    pub(crate) fn parse(bytes: &[u8], cut: bool) -> Self {
        let mut metrics = Self { cut, ..Self::default() };
        let mut lines = bytes.split(|&byte| byte == b'\n').peekable();
        while let Some(line) = lines.next() {
            let unterminated = lines.peek().is_none();
            if line.trim_ascii().is_empty() {
                continue;
            }
            match parse_row(line) {
                Some(_) if metrics.rows.len() >= ROW_LIMIT => metrics.cut = true,
                Some(row) => metrics.rows.push(row),
                None if unterminated => metrics.truncated_tail = !cut,
                None => metrics.garbage_lines += 1,
            }
        }
        metrics
    }

    /// The earliest step's reward, raw and clean.
    #[must_use]
    pub fn first(&self) -> Option<&MetricsRow> {
        self.rows.iter().filter(|row| row.reward.is_some()).min_by_key(|row| row.step)
    }

    /// The last rewards, at most `count` of them.
    #[must_use]
    pub fn last_rewards(&self, count: usize) -> Vec<f64> {
        let rewards: Vec<f64> = self.rows.iter().filter_map(|row| row.reward).collect();
        rewards.get(rewards.len().saturating_sub(count)..).unwrap_or_default().to_vec()
    }
}

/// Names of snippets, as the corpus spells them; anything else in the list is not one.
fn ids(map: &serde_json::Map<String, serde_json::Value>) -> Vec<String> {
    let named = |text: &&str| {
        !text.is_empty() && text.len() <= ID_LIMIT_BYTES && text.bytes().all(|each| each.is_ascii_graphic())
    };
    let entries = map.get("injected_ids").and_then(serde_json::Value::as_array).into_iter().flatten();
    entries.filter_map(serde_json::Value::as_str).filter(named).take(ID_LIMIT).map(str::to_owned).collect()
}

fn parse_row(line: &[u8]) -> Option<MetricsRow> {
    if line.len() > LINE_LIMIT_BYTES {
        return None;
    }
    let map = json::object(line)?;
    Some(MetricsRow {
        step: json::count(&map, "step").filter(|&step| step <= STEP_LIMIT)?,
        reward: json::number(&map, "reward"),
        reward_clean: json::number(&map, "reward_clean"),
        entropy: json::number(&map, "entropy"),
        kl: json::number(&map, "kl"),
        gpu_util: json::non_negative(&map, "gpu_util").filter(|&util| util <= 100.0),
        step_time_secs: json::non_negative(&map, "step_time_secs"),
        verify_secs: json::non_negative(&map, "verify_secs"),
        vm_rss_bytes: json::count(&map, "vm_rss_bytes"),
        open_fds: json::count(&map, "open_fds"),
        threads: json::count(&map, "threads"),
        children: json::count(&map, "children"),
        injected: json::count(&map, "injected"),
        masked: json::count(&map, "masked"),
        forged: json::count(&map, "forged"),
        timestamp: json::text(&map, "timestamp", TIME_LIMIT_BYTES),
        injected_ids: ids(&map),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_is_counted_and_a_torn_last_line_is_tolerated() {
        let file = b"{\"step\":1,\"reward\":0.5,\"kl\":null,\"new_field\":[]}\n\xff\xfe\n[1]\n{\"step\":-1}\n\n{\"step\":2}\n{\"step\":3,\"rew";
        let metrics = Metrics::parse(file, false);
        assert_eq!(metrics.rows.iter().map(|row| row.step).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(metrics.rows[0].reward, Some(0.5));
        assert_eq!((metrics.garbage_lines, metrics.truncated_tail, metrics.cut), (3, true, false));
    }

    #[test]
    fn a_whole_last_line_without_an_end_is_a_step() {
        let metrics = Metrics::parse(b"{\"step\":1}\n{\"step\":2}", false);
        assert_eq!((metrics.rows.len(), metrics.truncated_tail), (2, false));
    }

    #[test]
    fn rows_and_lines_are_bounded() {
        let mut file = b"{\"step\":1}\n".repeat(ROW_LIMIT + 5);
        file.extend_from_slice(b"{\"step\":1,\"pad\":\"");
        file.extend(std::iter::repeat_n(b'x', LINE_LIMIT_BYTES));
        file.extend_from_slice(b"\"}\n");
        let metrics = Metrics::parse(&file, false);
        assert_eq!((metrics.rows.len(), metrics.garbage_lines, metrics.cut), (ROW_LIMIT, 1, true));
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        let mut rng = crate::stats::Rng::new(7);
        for _ in 0..2000 {
            let alphabet = b"{}[]\",:0123456789.eE+-step\n\\u\x00\xff";
            let bytes: Vec<u8> = (0..64).map(|_| alphabet[rng.below(alphabet.len())]).collect();
            Metrics::parse(&bytes, false);
        }
    }

    #[test]
    fn the_last_rewards_are_the_last() {
        let metrics =
            Metrics::parse(b"{\"step\":1,\"reward\":1}\n{\"step\":2}\n{\"step\":3,\"reward\":3}\n", false);
        assert_eq!(metrics.last_rewards(1), [3.0]);
        assert_eq!(metrics.last_rewards(9), [1.0, 3.0]);
    }
}
