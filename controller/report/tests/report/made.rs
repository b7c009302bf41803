//! A sweep as a trainer would leave it, made up from a small generator: the published survival counts, a
//! learning curve, stalls of the baseline, and files of runs that died.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// One trial to be made up.
#[derive(Clone, Copy)]
pub(crate) struct Made {
    pub(crate) condition: &'static str,
    pub(crate) seed: u32,
    pub(crate) percent: &'static str,
    /// Exit status, reason and the step of death of a run that died.
    pub(crate) death: Option<(&'static str, &'static str, u64)>,
    pub(crate) gpu: bool,
}

pub(crate) const STEPS: u64 = 30;

/// Every trial of the tutorial's sweep.
pub(crate) fn full(gpu: bool) -> Vec<Made> {
    let deaths: [(u32, &str, (&str, &str, u64)); 3] = [
        (2, "5", ("Timeout", "no step within 60 s: an adversarial completion never returned", 17)),
        (1, "10", ("Signaled(9)", "fork bomb exhausted the pids limit", 12)),
        (2, "10", ("Clean(0)", "sys.exit(0) in a completion ended the trainer", 5)),
    ];
    let mut trials = Vec::new();
    for condition in ["in_loop", "rlox"] {
        for percent in ["0", "1", "5", "10"] {
            for seed in 0..3 {
                let death = deaths
                    .iter()
                    .find(|(s, p, _)| condition == "in_loop" && *s == seed && *p == percent)
                    .map(|(.., death)| *death);
                trials.push(Made { condition, seed, percent, death, gpu });
            }
        }
    }
    trials
}

/// The same arithmetic everywhere, between 0 and 1.
fn noise(seed: u64) -> f64 {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Writes one trial's directory.
pub(crate) fn write(root: &Path, made: Made) {
    let Made { condition, seed, percent, death, gpu } = made;
    let share: f64 = percent.parse::<f64>().unwrap() / 100.0;
    let in_loop = condition == "in_loop";
    let last = death.map_or(STEPS, |(.., step)| step);
    let mut lines = String::new();
    let (mut wall, mut injected, mut forged) = (4.0, 0, 0);
    let mut rewards = Vec::new();
    for step in 1..=last {
        let n = |salt: u64| {
            noise(
                u64::from(seed) * 1_000_003
                    + step * 977
                    + salt
                    + u64::from(percent.as_bytes()[percent.len() - 1]) * 31,
            )
        };
        let clean =
            (0.35 + 0.567 * (1.0 - (-(step as f64) / 7.0).exp()) + 0.05 * (n(1) - 0.5)).clamp(0.0, 1.0);
        let bad =
            u64::from(n(2) < share * 9.0) + u64::from(n(3) < share * 6.0) + u64::from(n(9) < share * 3.0);
        let bad_forged = u64::from(in_loop && bad > 0 && n(4) < 0.6);
        (injected, forged) = (injected + bad, forged + bad_forged);
        let reward = (clean * (64 - bad) as f64 + bad_forged as f64) / 64.0;
        let mut time = if in_loop { 0.62 } else { 0.80 } + 0.1 * n(5);
        if in_loop && bad > 0 && n(6) < 0.6 {
            time += 5.0 * bad as f64;
        }
        wall += time;
        rewards.push((reward, clean));
        let rss =
            410e6 + 1.1e6 * step as f64 + 9e6 * n(7) + if in_loop { 3.5e6 * injected as f64 } else { 0.0 };
        let util =
            if gpu { format!("{:.1}", (62.0 + 20.0 * n(8)) * 0.75 / time.max(0.75)) } else { "null".into() };
        writeln!(
            lines,
            r#"{{"step":{step},"reward":{reward:.4},"reward_clean":{clean:.4},"entropy":1.2,"kl":null,"gpu_util":{util},"step_time_secs":{time:.4},"verify_secs":{:.4},"vm_rss_bytes":{},"open_fds":31,"threads":9,"children":0,"injected":{bad},"masked":0,"forged":{bad_forged}}}"#,
            time * 0.3,
            rss.round()
        )
        .unwrap();
    }
    let directory = root.join(format!("{condition}_seed{seed}_fraction{percent}"));
    fs::create_dir_all(&directory).unwrap();
    if death.is_some() {
        lines.push_str("{\"step\":99,\"rew");
    }
    fs::write(directory.join("metrics.jsonl"), lines).unwrap();
    let (exit, reason) = death.map_or(("Clean(0)", None), |(exit, reason, _)| (exit, Some(reason)));
    // The published figure at 0 %, so that the guardrail's text can be compared with the tutorial's.
    let (reward, clean) = rewards[rewards.len() - 1];
    let final_reward = if percent == "0" { 0.907 + 0.01 * f64::from(seed) } else { reward };
    let summary = serde_json::json!({
        "condition": condition, "seed": seed, "adversarial_fraction": share, "survived": death.is_none(),
        "exit_status": exit, "reason": reason,
        "final_reward": death.is_none().then_some(final_reward),
        "final_reward_clean": death.is_none().then_some(clean),
        "first_reward": rewards[0].0, "wall_secs": wall, "steps_completed": last, "max_steps": STEPS,
        "contagion_events": if in_loop { injected / 4 } else { 0 }, "masked_samples": 0,
        "forged_rewards": forged, "injected_samples": injected,
        "memory_peak_bytes": 512_000_000, "pids_peak": 24, "model": {"parameters": 476_000},
    });
    fs::write(directory.join("run_summary.json"), summary.to_string()).unwrap();
}

/// Writes many.
pub(crate) fn write_all(root: &Path, trials: &[Made]) {
    trials.iter().for_each(|&made| write(root, made));
}
