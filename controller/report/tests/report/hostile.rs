//! Files that hostile code may have left in a trial's directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::made::{full, write_all};
use rlox_report::{Problem, Sweep, TrialState, load, plot, summarise, write_summary};
use tempfile::{TempDir, tempdir};

fn sweep_of_two() -> (TempDir, PathBuf) {
    let sweep = tempdir().unwrap();
    let trials: Vec<_> = full(false).into_iter().filter(|m| m.seed == 0 && m.percent == "5").collect();
    write_all(sweep.path(), &trials);
    let victim = sweep.path().join("in_loop_seed0_fraction5");
    (sweep, victim)
}

fn problem(sweep: &Sweep) -> Option<Problem> {
    match &sweep.trials[0].state {
        TrialState::Unusable(problem) => Some(problem.clone()),
        TrialState::Unfinished | TrialState::Finished(_) => None,
    }
}

fn replace(path: &Path) {
    fs::remove_file(path).unwrap();
}

#[test]
fn links_are_refused_even_to_a_good_file() {
    let (sweep, victim) = sweep_of_two();
    for name in ["run_summary.json", "metrics.jsonl"] {
        let aside = sweep.path().join(name);
        fs::rename(victim.join(name), &aside).unwrap();
        symlink(&aside, victim.join(name)).unwrap();
    }
    let loaded = load(sweep.path()).unwrap();
    assert_eq!(problem(&loaded), Some(Problem::NotARegularFile));
    assert_eq!(loaded.trials[0].metrics.problem, Some(Problem::NotARegularFile));
    assert!(loaded.trials[0].metrics.rows.is_empty());
    let summary = summarise(&loaded);
    assert_eq!(summary.missing_trials[0].why, "run_summary.json: not a regular file");
}

#[test]
fn a_linked_trial_directory_is_refused() {
    let (sweep, victim) = sweep_of_two();
    let elsewhere = tempdir().unwrap();
    fs::rename(&victim, elsewhere.path().join("x")).unwrap();
    symlink(elsewhere.path().join("x"), &victim).unwrap();
    let loaded = load(sweep.path()).unwrap();
    assert_eq!((loaded.trials.len(), loaded.refused_entries.len()), (1, 1));
    assert_eq!(summarise(&loaded).missing_trials[0].why, "not a directory");
}

#[test]
fn a_pipe_does_not_block_and_a_directory_is_no_file() {
    let (sweep, victim) = sweep_of_two();
    let path = victim.join("run_summary.json");
    replace(&path);
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert_eq!(problem(&load(sweep.path()).unwrap()), Some(Problem::NotARegularFile));
    replace(&path);
    fs::create_dir(&path).unwrap();
    assert_eq!(problem(&load(sweep.path()).unwrap()), Some(Problem::NotARegularFile));
}

#[test]
fn sizes_are_bounded() {
    let (sweep, victim) = sweep_of_two();
    let huge = fs::File::create(victim.join("run_summary.json")).unwrap();
    huge.set_len(1 << 40).unwrap();
    let huge = fs::File::options().write(true).open(victim.join("metrics.jsonl")).unwrap();
    huge.set_len(1 << 40).unwrap();
    let loaded = load(sweep.path()).unwrap();
    assert!(matches!(problem(&loaded), Some(Problem::TooLarge { .. })));
    let metrics = &loaded.trials[0].metrics;
    assert_eq!((metrics.rows.len(), metrics.cut), (30, true));
}

#[test]
fn garbage_of_every_kind_still_gives_a_report_and_figures() {
    let (sweep, victim) = sweep_of_two();
    let out = tempdir().unwrap();
    let summaries: [&[u8]; 5] = [
        b"",
        b"\xff\x00",
        b"{\"condition\":",
        b"[[[[",
        br#"{"condition":"in_loop","seed":0,"adversarial_fraction":0.05,"survived":false,"exit_status":"</td><script>|`Timeout",
            "reason":"a|b\n# c <img src=x onerror=1>","final_reward":1e999,"steps_completed":18446744073709551615,
            "max_steps":1e15,"wall_secs":-1,"injected_samples":1e15,"forged_rewards":1e15,"first_reward":-1e15}"#,
    ];
    let metrics: [&[u8]; 4] = [
        b"",
        b"\n\n\xfe\n{}\n[]",
        b"{\"step\":1,\"step_time_secs\":1e-300,\"vm_rss_bytes\":1}\n{\"step\":1000000000,\"step_time_secs\":1e15,\"vm_rss_bytes\":1e15,\"reward\":-1e15}\n",
        b"{\"step\":5,\"step_time_secs\":0}\n{\"step\":5,\"step_time_secs\":1}\n{\"step\":0}\n{\"step\":1,\"gpu_util\":5000}\n{\"st",
    ];
    for (index, summary) in summaries.iter().enumerate() {
        fs::write(victim.join("run_summary.json"), summary).unwrap();
        fs::write(victim.join("metrics.jsonl"), metrics[index % metrics.len()]).unwrap();
        let loaded = load(sweep.path()).unwrap();
        let summary = summarise(&loaded);
        let files = write_summary(&summary, out.path()).unwrap();
        let page = fs::read_to_string(files.markdown).unwrap();
        assert!(!page.contains("<script>") && !page.contains("<img"), "{page}");
        if index == summaries.len() - 1 {
            plot(&loaded, &summary, out.path()).unwrap();
        }
    }
    fs::write(victim.join("metrics.jsonl"), metrics[2]).unwrap();
    let loaded = load(sweep.path()).unwrap();
    plot(&loaded, &summarise(&loaded), out.path()).unwrap();
}
