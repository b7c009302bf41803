//! Counters in Prometheus' text format.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::dialects::Counters;
use crate::job::Finished;
use crate::judge::Verdict;
use crate::sandbox::{AheadState, PoolState};
use crate::tampering::FAMILIES;

/// Upper bounds of the latency buckets in seconds.
const BUCKETS: [f64; 10] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Everything counted since the start.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    verdicts: [AtomicU64; Verdict::ALL.len()],
    rejected: AtomicU64,
    faults: AtomicU64,
    tampering: [AtomicU64; FAMILIES.len()],
    oom_kills: AtomicU64,
    leftovers: AtomicU64,
    pressed: AtomicU64,
    retries: AtomicU64,
    buckets: [AtomicU64; BUCKETS.len()],
    seconds_micros: AtomicU64,
    /// Requests in other servers' dialects.
    pub(crate) dialects: Counters,
}

impl Metrics {
    /// Counts one verdict.
    pub(crate) fn finished(&self, finished: &Finished) {
        let index = Verdict::ALL.iter().position(|each| *each == finished.judged.verdict).unwrap_or_default();
        if let Some(counter) = self.verdicts.get(index) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        for seen in &finished.judged.tampering {
            let family =
                FAMILIES.iter().zip(&self.tampering).find(|(family, _)| **family == seen.kind.family());
            if let Some((_, counter)) = family {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.oom_kills.fetch_add(finished.events.oom_kill, Ordering::Relaxed);
        self.leftovers.fetch_add(finished.events.leftovers, Ordering::Relaxed);
        self.retries.fetch_add(finished.events.retries, Ordering::Relaxed);
        if finished.events.pressure && finished.judged.verdict == Verdict::Timeout {
            self.pressed.fetch_add(1, Ordering::Relaxed);
        }
        let usage = &finished.usage;
        let seconds = usage.queue_secs + usage.setup_secs + usage.wall_secs;
        for (bound, counter) in BUCKETS.iter().zip(&self.buckets) {
            if seconds <= *bound {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.seconds_micros.fetch_add(micros(seconds), Ordering::Relaxed);
    }

    /// Counts a request refused for a full queue.
    pub(crate) fn rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a failure of the sandbox itself.
    pub(crate) fn fault(&self) {
        self.faults.fetch_add(1, Ordering::Relaxed);
    }

    /// The text of `GET /metrics`.
    pub(crate) fn render(
        &self,
        pool: PoolState,
        ahead: AheadState,
        refused_reports: &[(&str, u64)],
    ) -> String {
        let mut text = String::new();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut line = |line: std::fmt::Arguments<'_>| {
            // Writing to a String cannot fail.
            writeln!(text, "{line}").unwrap_or_default();
        };
        line(format_args!("# HELP rlox_verdicts_total Verifications by verdict."));
        line(format_args!("# TYPE rlox_verdicts_total counter"));
        let mut count = 0;
        for (verdict, counter) in Verdict::ALL.iter().zip(&self.verdicts) {
            count += read(counter);
            line(format_args!("rlox_verdicts_total{{verdict=\"{}\"}} {}", verdict.word(), read(counter)));
        }
        line(format_args!("# HELP rlox_verify_seconds Queue, set-up and run time of a verification."));
        line(format_args!("# TYPE rlox_verify_seconds histogram"));
        for (bound, counter) in BUCKETS.iter().zip(&self.buckets) {
            line(format_args!("rlox_verify_seconds_bucket{{le=\"{bound}\"}} {}", read(counter)));
        }
        line(format_args!("rlox_verify_seconds_bucket{{le=\"+Inf\"}} {count}"));
        let micros = read(&self.seconds_micros);
        line(format_args!("rlox_verify_seconds_sum {}.{:06}", micros / 1_000_000, micros % 1_000_000));
        line(format_args!("rlox_verify_seconds_count {count}"));
        for (name, help, counter) in [
            ("rlox_rejected_total", "Requests refused because the queue was full.", &self.rejected),
            ("rlox_sandbox_faults_total", "Verifications that the sandbox itself failed.", &self.faults),
            ("rlox_oom_kills_total", "Processes of snippets killed for memory.", &self.oom_kills),
            (
                "rlox_timeouts_under_pressure_total",
                "Timeouts, also at the second try, of programs whose time others had.",
                &self.pressed,
            ),
        ] {
            line(format_args!("# HELP {name} {help}"));
            line(format_args!("# TYPE {name} counter"));
            line(format_args!("{name} {}", read(counter)));
        }
        line(format_args!("# HELP rlox_retries_total Containers that were run once more."));
        line(format_args!("# TYPE rlox_retries_total counter"));
        line(format_args!("rlox_retries_total{{reason=\"pressure\"}} {}", read(&self.retries)));
        let leftovers = read(&self.leftovers) + ahead.late_leftovers;
        for (name, help, value) in [
            ("rlox_leftovers_total", "Processes or cgroups found after a container's end.", leftovers),
            ("rlox_pool_hits_total", "Executions that met a container made ahead.", ahead.hits),
            ("rlox_pool_misses_total", "Executions that waited for their container.", ahead.misses),
            ("rlox_pool_made_total", "Containers made ahead.", ahead.made),
            ("rlox_pool_failed_total", "Containers that could not be made ahead.", ahead.failed),
        ] {
            line(format_args!("# HELP {name} {help}"));
            line(format_args!("# TYPE {name} counter"));
            line(format_args!("{name} {value}"));
        }
        line(format_args!("# HELP rlox_pool_made_seconds_total Time spent making containers ahead."));
        line(format_args!("# TYPE rlox_pool_made_seconds_total counter"));
        line(format_args!("rlox_pool_made_seconds_total {:.6}", ahead.made_secs));
        line(format_args!("# HELP rlox_tampering_total Attempts at tampering that were seen, by family."));
        line(format_args!("# TYPE rlox_tampering_total counter"));
        for (family, counter) in FAMILIES.iter().zip(&self.tampering) {
            line(format_args!("rlox_tampering_total{{family=\"{family}\"}} {}", read(counter)));
        }
        for dialect_line in self.dialects.lines() {
            line(format_args!("{dialect_line}"));
        }
        line(format_args!("# HELP rlox_refused_reports_total Reports of the grader that were not believed."));
        line(format_args!("# TYPE rlox_refused_reports_total counter"));
        for (reason, count) in refused_reports {
            line(format_args!("rlox_refused_reports_total{{reason=\"{reason}\"}} {count}"));
        }
        for (name, help, value) in [
            ("rlox_workers", "Sandboxes that may run at once.", u64::from(pool.workers)),
            ("rlox_workers_busy", "Sandboxes that run now.", pool.busy),
            ("rlox_pool_waiting", "Containers that wait for a program.", ahead.waiting),
            ("rlox_queue_waiting", "Jobs that wait.", pool.waiting as u64),
            ("rlox_queue_capacity", "Jobs that may wait.", pool.capacity as u64),
        ] {
            line(format_args!("# HELP {name} {help}"));
            line(format_args!("# TYPE {name} gauge"));
            line(format_args!("{name} {value}"));
        }
        text
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "seconds of one verification, never negative"
)]
fn micros(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e6) as u64
}
