//! What a request of a dialect may use, and what that says about its end.
//!
//! Clients of these servers send fixed values and cannot adapt to an error. So a limit above this server's own is not
//! refused in SandboxFusion's dialect, but it never decides either: a program that meets a lowered limit has no
//! verdict. One that ends within it would have ended within the higher one.

use std::time::Duration;

use super::Refusal;
use crate::config::{Ceilings, DEFAULT_PIDS, Granted, MIN_MEMORY_MB, ServiceConfig};
use crate::script::Exits;

/// Bytes kept of each output stream.
pub(crate) const OUTPUT_BYTES: u64 = 4 << 20;
/// What a client waits for beyond its limits, and what of that the network and we keep for ourselves.
pub(crate) const SLACK: Duration = Duration::from_secs(10);
pub(crate) const RESERVE: Duration = Duration::from_secs(2);

/// What this server grants to dialects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Server {
    pub(crate) ceilings: Ceilings,
    /// The most time of one run.
    pub(crate) timeout: Duration,
    /// Every end with code 0 counts, as with the originals.
    pub(crate) lenient_exit: bool,
}

impl Server {
    pub(crate) fn of(config: &ServiceConfig) -> Self {
        let dialects = config.dialects;
        Self { ceilings: config.ceilings, timeout: dialects.timeout, lenient_exit: dialects.lenient_exit }
    }

    /// Which ends count of a program with this input. With input its client compares its output, as `stdio` of
    /// `/verify` does; without, its own text may hold the checks.
    pub(crate) fn exits(&self, stdin: &str) -> Exits {
        match (self.lenient_exit, stdin.is_empty()) {
            (true, _) => Exits::Any,
            (false, true) => Exits::Last,
            (false, false) => Exits::Anywhere,
        }
    }

    /// Limits of a run that has to be answered within `patience`.
    pub(crate) fn granted(&self, timeout: Duration, memory_mb: u64, patience: Duration) -> Granted {
        // The wall clock stands still under load, but not beyond the time for which the client waits.
        let room = patience.as_secs_f64() / timeout.as_secs_f64().max(0.001);
        Granted {
            timeout,
            wall_factor: self.ceilings.wall_factor.min(room).max(1.0),
            memory_mb,
            pids: DEFAULT_PIDS.min(self.ceilings.pids),
            output_bytes: OUTPUT_BYTES,
        }
    }
}

/// What was asked for, and what is in force.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Terms {
    granted: Granted,
    asked_timeout: Duration,
    asked_memory_mb: u64,
}

impl Terms {
    /// The asked limits, lowered to the server's own.
    pub(crate) fn lowered(server: &Server, timeout: Duration, memory_mb: u64, patience: Duration) -> Self {
        let memory = memory_mb.clamp(MIN_MEMORY_MB, server.ceilings.memory_mb.max(MIN_MEMORY_MB));
        let granted = server.granted(timeout.min(server.timeout), memory, patience);
        Self { granted, asked_timeout: timeout, asked_memory_mb: memory_mb }
    }

    /// Those limits, where none is above the server's own.
    pub(crate) fn exactly(server: &Server, timeout: Duration, memory_mb: u64, patience: Duration) -> Self {
        let memory = memory_mb.max(MIN_MEMORY_MB);
        let granted = server.granted(timeout, memory, patience);
        Self { granted, asked_timeout: timeout, asked_memory_mb: memory_mb }
    }

    pub(crate) fn granted(&self) -> Granted {
        self.granted
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.granted.timeout
    }

    pub(crate) fn memory_mb(&self) -> u64 {
        self.granted.memory_mb
    }

    /// An error with the reason where a time limit that was reached is not the one asked for.
    pub(crate) fn time_decides(&self) -> Result<(), String> {
        if self.asked_timeout <= self.granted.timeout {
            return Ok(());
        }
        let (asked, granted) = (self.asked_timeout.as_secs_f64(), self.granted.timeout.as_secs_f64());
        Err(format!(
            "it ran for {granted} s, which is all that this server grants, and {asked} s were asked for: no result; raise --dialect-timeout-secs"
        ))
    }

    /// The same for memory.
    pub(crate) fn memory_decides(&self) -> Result<(), String> {
        if self.asked_memory_mb <= self.granted.memory_mb {
            return Ok(());
        }
        let (asked, granted) = (self.asked_memory_mb, self.granted.memory_mb);
        Err(format!(
            "it used {granted} MiB, which is all that this server grants, and {asked} MiB were asked for: no result; raise --max-memory-mb"
        ))
    }

    /// The limits in force, for a header.
    pub(crate) fn header(&self) -> String {
        let lowered = match (self.time_decides(), self.memory_decides()) {
            (Ok(()), Ok(())) => "",
            (Err(_), Ok(())) => ", lowered=timeout",
            (Ok(()), Err(_)) => ", lowered=memory",
            (Err(_), Err(_)) => ", lowered=\"timeout memory\"",
        };
        let Granted { timeout, memory_mb, pids, output_bytes, .. } = self.granted;
        let timeout = timeout.as_secs_f64();
        format!(
            "timeout_secs={timeout}, memory_mb={memory_mb}, pids={pids}, output_bytes={output_bytes}{lowered}"
        )
    }
}

/// A time in seconds as a client gave it.
pub(crate) fn seconds(name: &str, value: f64) -> Result<Duration, Refusal> {
    match Duration::try_from_secs_f64(value) {
        Ok(time) if time >= Duration::from_millis(10) && time <= Duration::from_secs(86_400) => Ok(time),
        Ok(_) | Err(_) => Refusal::invalid(format!("{name} is {value}; send seconds from 0.01 to 86400")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(lenient_exit: bool) -> Server {
        Server { ceilings: Ceilings::default(), timeout: Duration::from_secs(30), lenient_exit }
    }

    #[test]
    fn a_limit_that_was_lowered_does_not_decide() {
        let patience = Duration::from_secs(28);
        let secs = Duration::from_secs;
        let as_asked = Terms::lowered(&server(false), secs(10), 1024, patience);
        assert!(as_asked.time_decides().is_ok() && as_asked.memory_decides().is_ok());
        assert_eq!(as_asked.header(), "timeout_secs=10, memory_mb=1024, pids=64, output_bytes=4194304");
        assert!((as_asked.granted().wall_factor - 2.8).abs() < 1e-9, "{as_asked:?}");
        let lowered = Terms::lowered(&server(false), secs(60), 4096, patience);
        assert_eq!((lowered.timeout(), lowered.memory_mb()), (secs(30), 2048));
        assert!(lowered.time_decides().is_err() && lowered.memory_decides().is_err());
        assert!(lowered.header().ends_with(", lowered=\"timeout memory\""));
    }

    #[test]
    fn what_counts_as_an_end_depends_on_who_compares() {
        assert_eq!(server(false).exits(""), Exits::Last);
        assert_eq!(server(false).exits("1\n"), Exits::Anywhere);
        assert_eq!(server(true).exits(""), Exits::Any);
    }

    #[test]
    fn times_that_are_none_are_refused() {
        assert_eq!(seconds("t", 0.5), Ok(Duration::from_millis(500)));
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert!(seconds("t", bad).is_err(), "{bad}");
        }
    }
}
