//! What a reader has to know before citing the numbers.

use super::format::wln;
use crate::summary::Summary;

pub(super) fn caveats(page: &mut String, summary: &Summary) {
    page.push_str("## Caveats\n\n");
    let largest = summary.survival.iter().filter(|c| c.fraction.is_some()).map(|c| c.total).max();
    let gpu = if summary.gpu.iter().any(|gpu| gpu.samples > 0) {
        "GPU utilisation was sampled."
    } else {
        "No GPU was sampled in this sweep."
    };
    wln(
        page,
        format_args!(
            "1. **Small numbers.** At most {} trials a cell. Read the intervals, not the fractions: even 3 of 3 \
             is compatible with a true survival of 44 %.\n\
             2. **Scale.** The default that runs on a CPU trains a model of 476k parameters on small, \
             intentionally modest tasks, on a single machine. {gpu} Rewards compare across conditions here, not \
             with the published ones, which come from another model.\n\
             3. **What `in_loop` means.** Completions are executed in the trainer's own process without any \
             protection, which is the worst case. A trainer that already spawns a process per completion \
             stands between the two conditions.\n\
             4. **Code 0 is no survival.** `sys.exit(0)` in a completion ends an unprotected trainer cleanly. A \
             run survived only where it also did all of its steps; a record that says otherwise is not \
             believed.\n\
             5. **Survivors only.** Final rewards are known for runs that ended well. Where `in_loop` lost runs, \
             its mean is over the lucky ones.\n\
             6. **Parity is agreement, not proof of equivalence.** With few seeds a wide interval includes 0 \
             easily; the stricter line above says whether the whole interval is within the margin. Harder \
             tasks may differ.\n\
             7. **Throughput is not measured.** One machine has no decoupling of rollout and training to \
             exploit. Step times include everything that a step does.\n\
             8. **Self-reported.** Metrics are written by the trainer, which in `in_loop` shares its process \
             with hostile code. How a run ended is believed only where the recorded facts agree with each other.",
            largest.unwrap_or(0)
        ),
    );
}
