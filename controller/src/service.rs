//! The verification service without HTTP: surroundings, pool, counters, and one call per job.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::{
    DEFAULT_MEMORY_MB, DEFAULT_OUTPUT_BYTES, DEFAULT_PIDS, DEFAULT_WALL_FACTOR, Granted, ServiceConfig,
};
use crate::home::Home;
use crate::job::{Finished, Job};
use crate::metrics::Metrics;
use crate::sandbox::{Environment, EnvironmentError, Pool, Queued, SandboxError, SubmitError};

/// The raw system call `clone` with `CLONE_NEWUSER`, which only the filter's argument rule refuses.
const NAMESPACE_PROBE: &str = "\
import ctypes, os
def makes_user_namespace():
    made = ctypes.CDLL(None).syscall(56, 0x10000000 | 17, 0, 0, 0, 0)
    if made == 0:
        os._exit(0)
    return made > 0
";

/// What mounts and modes allow and Landlock does not.
const LANDLOCK_PROBE: &str = "\
def may_write(path):
    try:
        open(path, 'w').close()
    except PermissionError:
        return False
    return True
";

/// A running service.
pub(crate) struct Service {
    pub(crate) environment: Arc<Environment>,
    pub(crate) pool: Pool,
    pub(crate) metrics: Metrics,
    pub(crate) config: ServiceConfig,
}

/// The service cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The installation is incomplete.
    #[error(transparent)]
    Home(#[from] crate::home::HomeError),
    /// The host cannot contain snippets.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// Workers cannot be started.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The first program did not come back as it must.
    #[error("self-test failed: {reason}")]
    SelfTest {
        /// What happened instead.
        reason: String,
    },
}

/// Why a job has no verdict.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VerifyError {
    /// Not taken.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The sandbox failed.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

impl Service {
    /// Starts workers and proves with a few programs that the whole path works on this host.
    pub(crate) fn start(home: Home, config: ServiceConfig) -> Result<Arc<Self>, StartError> {
        let service = Self::start_weakened(home, config)?;
        service.self_test()?;
        Ok(service)
    }

    /// Starts without that proof. For the controls of `doctor`, whose home lacks a layer on purpose; a service that
    /// answers anybody proves itself first.
    pub(crate) fn start_weakened(home: Home, config: ServiceConfig) -> Result<Arc<Self>, StartError> {
        home.bundle("snippet")?;
        home.bundle("grader")?;
        let environment = Arc::new(Environment::prepare(home, &config)?);
        let pool = Pool::start(&environment, config.workers, config.queue, config.pool)?;
        Ok(Arc::new(Self { environment, pool, metrics: Metrics::default(), config }))
    }

    /// An honest program has to pass, and a program that asks for a user namespace of its own has to be refused:
    /// that a filter is loaded does not show that it filters. No file says whether Landlock is in force, so that is
    /// tried too.
    fn self_test(&self) -> Result<(), StartError> {
        for (code, test) in [
            ("def double(x):\n    return 2 * x\n", "assert double(21) == 42"),
            (NAMESPACE_PROBE, "assert makes_user_namespace() is False"),
        ] {
            self.expect_pass(code, test)?;
        }
        if self.environment.isolation.landlock {
            let test = "assert (may_write('/dev/null'), may_write('/proc/self/comm')) == (True, False)";
            self.expect_pass(LANDLOCK_PROBE, test)?;
        }
        Ok(())
    }

    fn expect_pass(&self, code: &str, test: &str) -> Result<(), StartError> {
        let failed = |reason: String| StartError::SelfTest { reason };
        let job = Job {
            id: "self-test".into(),
            code: code.into(),
            tests: vec![test.into()],
            stdio: Vec::new(),
            early_stop: false,
            granted: Granted {
                timeout: Duration::from_secs(30),
                wall_factor: DEFAULT_WALL_FACTOR,
                memory_mb: DEFAULT_MEMORY_MB,
                pids: DEFAULT_PIDS,
                output_bytes: DEFAULT_OUTPUT_BYTES,
            },
            script: None,
        };
        let queued = self.pool.try_submit(job).map_err(|error| failed(error.to_string()))?;
        let finished = queued.blocking_recv().map_err(|error| failed(error.to_string()))??;
        if finished.judged.reward == Some(1.0) {
            return Ok(());
        }
        Err(failed(format!("{test}: {:?}; stderr: {}", finished.judged, finished.stderr.text)))
    }

    /// One verification; refused at once where the queue is full.
    pub(crate) async fn verify(&self, job: Job) -> Result<Finished, VerifyError> {
        let queued = self.pool.try_submit(job).inspect_err(|_| self.metrics.rejected())?;
        self.answer(queued).await
    }

    /// Runs a script whose answer is of use only until then. What runs goes on to its end, what waits is dropped.
    pub(crate) async fn run_script(&self, job: Job, answer_by: Instant) -> Result<Finished, VerifyError> {
        tokio::time::timeout_at(answer_by.into(), self.verify(job)).await.unwrap_or_else(|_| {
            self.metrics.rejected();
            Err(SubmitError::Late.into())
        })
    }

    /// One verification of a batch; waits for room in the queue.
    pub(crate) async fn verify_batched(&self, job: Job) -> Result<Finished, VerifyError> {
        let queued = self.pool.submit(job).await?;
        self.answer(queued).await
    }

    async fn answer(&self, queued: Queued) -> Result<Finished, VerifyError> {
        let result = queued.await.unwrap_or_else(|_| {
            Err(SandboxError::System { action: "waiting for a worker", reason: "it ended".into() })
        });
        match result {
            Ok(finished) => {
                self.metrics.finished(&finished);
                Ok(finished)
            }
            Err(SandboxError::Late) => {
                self.metrics.rejected();
                Err(SubmitError::Late.into())
            }
            Err(error) => {
                self.metrics.fault();
                Err(error.into())
            }
        }
    }
}
