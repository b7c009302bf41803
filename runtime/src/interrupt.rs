//! Ctrl-C and termination for the foreground `run`: the container is in a session of its own and would outlive us.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Requests to end this process.
pub(crate) struct Interrupt {
    /// Becomes readable with the first of them.
    pub(crate) descriptor: OwnedFd,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Catches the signals from here on.
    pub(crate) fn catch() -> io::Result<Self> {
        let (reading, writing) = UnixStream::pair()?;
        let signal = Arc::new(AtomicUsize::new(0));
        for number in [SIGINT, SIGTERM, SIGHUP] {
            // The number first: whoever sees the descriptor readable finds it.
            signal_hook::flag::register_usize(
                number,
                Arc::clone(&signal),
                usize::try_from(number).unwrap_or(0),
            )?;
            signal_hook::low_level::pipe::register(number, writing.try_clone()?)?;
        }
        Ok(Self { descriptor: reading.into(), signal })
    }

    /// The signal that came last.
    pub(crate) fn signal(&self) -> Option<i32> {
        i32::try_from(self.signal.load(Ordering::SeqCst)).ok().filter(|number| *number > 0)
    }
}
