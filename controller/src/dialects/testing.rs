//! Finished jobs and a server, for the tests of both dialects.

use std::time::Duration;

use rlox_protocol::Ending;

use super::Server;
use crate::config::{Ceilings, Granted};
use crate::job::{Captured, Events, Finished, Usage};
use crate::judge::{Judged, Verdict};
use crate::script::{Ran, Told};

pub(super) fn server() -> Server {
    Server { ceilings: Ceilings::default(), timeout: Duration::from_secs(30), lenient_exit: false }
}

/// A script that ended so, with a little output.
pub(super) fn finished(verdict: Verdict, ending: Ending) -> Finished {
    let captured = |text: &str| Captured { text: text.to_owned(), truncated: false };
    Finished {
        job_id: "id".into(),
        granted: Granted::default(),
        judged: Judged {
            verdict,
            reward: None,
            exit_status: String::new(),
            authenticated: true,
            tests: Vec::new(),
            tampering: Vec::new(),
        },
        usage: Usage { memory_peak_bytes: 4096, ..Usage::default() },
        events: Events::default(),
        stdout: captured("out\n"),
        stderr: captured("err\n"),
        ran: Some(Ran {
            ending,
            told: Told::End,
            wall_secs: 0.25,
            cpu_secs: 0.125,
            fetched: Vec::new(),
            stdout_bytes: 4,
            stderr_bytes: 4,
        }),
    }
}
