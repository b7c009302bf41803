//! The verification service without HTTP: surroundings, pool, counters, and one call per job.

use std::sync::Arc;

use crate::config::ServiceConfig;
use crate::home::Home;
use crate::job::{Finished, Job};
use crate::metrics::Metrics;
use crate::sandbox::{Environment, EnvironmentError, Pool, Queued, SandboxError, SubmitError};

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
    /// Starts workers and proves with one honest program that the whole path works on this host.
    pub(crate) fn start(home: Home, config: ServiceConfig) -> Result<Arc<Self>, StartError> {
        home.bundle("snippet")?;
        home.bundle("grader")?;
        let environment = Arc::new(Environment::prepare(home, config.allow_missing_cgroup)?);
        let pool = Pool::start(&environment, config.workers, config.queue)?;
        let service = Arc::new(Self { environment, pool, metrics: Metrics::default(), config });
        service.self_test()?;
        Ok(service)
    }

    fn self_test(&self) -> Result<(), StartError> {
        let failed = |reason: String| StartError::SelfTest { reason };
        let job = Job {
            id: "self-test".into(),
            code: "def double(x):\n    return 2 * x\n".into(),
            tests: vec!["assert double(21) == 42".into()],
            stdio: Vec::new(),
            granted: crate::config::Granted {
                timeout: std::time::Duration::from_secs(30),
                memory_mb: crate::config::DEFAULT_MEMORY_MB,
                pids: crate::config::DEFAULT_PIDS,
                output_bytes: crate::config::DEFAULT_OUTPUT_BYTES,
            },
        };
        let queued = self.pool.try_submit(job).map_err(|error| failed(error.to_string()))?;
        let finished = queued.blocking_recv().map_err(|error| failed(error.to_string()))??;
        if finished.judged.reward == Some(1.0) {
            return Ok(());
        }
        Err(failed(format!("{:?}; stderr: {}", finished.judged, finished.stderr.text)))
    }

    /// One verification; refused at once where the queue is full.
    pub(crate) async fn verify(&self, job: Job) -> Result<Finished, VerifyError> {
        let queued = self.pool.try_submit(job).inspect_err(|_| self.metrics.rejected())?;
        self.answer(queued).await
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
            Err(error) => {
                self.metrics.fault();
                Err(error.into())
            }
        }
    }
}
