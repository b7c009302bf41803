//! The store without containers: what is kept, what is refused, what a crash leaves.

use serde_json::Value;

use super::*;
use crate::sweep::plan::{EngineKind, Profile};

fn plan() -> (Plan, Vec<TrialKey>) {
    let plan = Plan::of(Profile::Smoke);
    let keys = plan.check().unwrap();
    (plan, keys)
}

fn handle(id: &str) -> Handle {
    Handle { engine: EngineKind::Runtime, id: id.to_owned() }
}

/// A store of one sweep, in the directory itself.
fn adopted(root: &Path) -> (Store, String, Vec<TrialKey>) {
    let (plan, keys) = plan();
    let store = Store::open(root).unwrap();
    let id = store.adopt(&plan, &keys, &[], false).unwrap();
    (store, id, keys)
}

fn summary(survived: bool) -> Value {
    serde_json::json!({ "survived": survived, "exit_status": "Clean(0)", "recorded_by": RECORDER })
}

fn states(store: &Store, id: &str) -> Vec<(TrialState, u32)> {
    let view = store.sweep(id).unwrap().unwrap();
    store.trials(&view).unwrap().iter().map(|trial| (trial.state, trial.attempts)).collect()
}

#[test]
fn a_recorded_trial_is_kept_and_one_that_ran_is_found_with_its_handle() {
    let directory = tempfile::tempdir().unwrap();
    let (store, id, keys) = adopted(directory.path());
    let folder = store.job(&id).unwrap().unwrap().folder;
    store.begin_trial(&id, keys[0], Some(&handle("1.2-3-4"))).unwrap();
    folder.begin(keys[0]).unwrap();
    store.record(&id, &folder, keys[0], &summary(true)).unwrap();
    store.begin_trial(&id, keys[1], Some(&handle("1.2-3-5"))).unwrap();
    drop(store);

    let (store, again, _) = adopted(directory.path());
    assert_eq!(again, id);
    assert_eq!(store.running_trials().unwrap(), [(id.clone(), keys[1], Some(handle("1.2-3-5")))]);
    store.leave(&id, keys[1], TrialState::Interrupted, "died").unwrap();
    assert_eq!(store.requeue(&id, &[TrialState::Interrupted]).unwrap(), 1);
    assert_eq!(store.queued(&id).unwrap(), keys[1..]);
    assert_eq!(states(&store, &id)[..2], [(TrialState::Finished, 1), (TrialState::Queued, 1)]);
}

#[test]
fn a_finished_trial_is_never_begun_recorded_or_left_again() {
    let directory = tempfile::tempdir().unwrap();
    let (store, id, keys) = adopted(directory.path());
    let folder = store.job(&id).unwrap().unwrap().folder;
    store.begin_trial(&id, keys[0], None).unwrap();
    folder.begin(keys[0]).unwrap();
    store.record(&id, &folder, keys[0], &summary(true)).unwrap();
    assert!(matches!(store.begin_trial(&id, keys[0], None), Err(StoreError::State { .. })));
    assert!(matches!(store.record(&id, &folder, keys[0], &summary(false)), Err(StoreError::State { .. })));
    let left = store.leave(&id, keys[0], TrialState::Failed, "x");
    assert!(matches!(left, Err(StoreError::State { .. })));
    assert_eq!(states(&store, &id)[0], (TrialState::Finished, 1));
    let view = store.sweep(&id).unwrap().unwrap();
    assert_eq!(store.trials(&view).unwrap()[0].survived, Some(true), "a refused change changed something");
}

#[test]
fn what_the_trainer_writes_in_place_of_a_summary_is_put_right() {
    let directory = tempfile::tempdir().unwrap();
    let (store, id, keys) = adopted(directory.path());
    let job = store.job(&id).unwrap().unwrap();
    store.begin_trial(&id, keys[0], None).unwrap();
    let trial = job.folder.begin(keys[0]).unwrap();
    store.record(&id, &job.folder, keys[0], &summary(false)).unwrap();
    std::fs::write(trial.join("run_summary.json"), r#"{"survived": true}"#).unwrap();
    store.restore(&job).unwrap();
    let text = std::fs::read_to_string(trial.join("run_summary.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), summary(false));
}

#[test]
fn a_directory_serves_one_sweep_and_one_controller() {
    let directory = tempfile::tempdir().unwrap();
    let (store, ..) = adopted(directory.path());
    assert!(matches!(Store::open(directory.path()), Err(StoreError::Busy { .. })));
    assert_eq!(Store::running(directory.path()), i32::try_from(std::process::id()).ok());
    let other = Plan::of(Profile::Full);
    let keys = other.check().unwrap();
    assert!(matches!(
        store.adopt(&other, &keys, &[], false),
        Err(StoreError::Other { what: "the plan", .. })
    ));
    let pins = [Pinned { name: "a".into(), digest: "b".into() }];
    let (plan, same) = plan();
    assert!(matches!(
        store.adopt(&plan, &same, &pins, false),
        Err(StoreError::Other { what: "the corpus", .. })
    ));
    // More at once is the same sweep.
    let wider = Plan { parallel: Some(7), ..plan };
    let id = store.adopt(&wider, &same, &[], false).unwrap();
    assert_eq!(store.job(&id).unwrap().unwrap().plan.parallel, Some(7));
    let id = store.adopt(&other, &keys, &[], true).unwrap();
    assert_eq!(store.sweeps(10).unwrap().len(), 1);
    assert_eq!(store.queued(&id).unwrap().len(), 24);
}

#[test]
fn a_request_that_is_sent_again_is_the_same_sweep() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let (plan, keys) = plan();
    let request = |digest| Some(RequestKey { key: "mine", digest });
    let first = store.add(&plan, &keys, &[], request("a")).unwrap();
    let second = store.add(&plan, &keys, &[], request("a")).unwrap();
    assert_eq!((first.again, second.again, &second.id), (false, true, &first.id));
    assert!(matches!(store.add(&plan, &keys, &[], request("b")), Err(StoreError::KeyTaken { .. })));
    let third = store.add(&plan, &keys, &[], None).unwrap();
    assert_ne!(third.id, first.id);
    assert_eq!(store.next_sweep().unwrap().unwrap().id, first.id, "the oldest comes first");
    store.prepare(&store.job(&third.id).unwrap().unwrap()).unwrap();
    assert!(directory.path().join(&third.id).join(".sweep.json").is_file());
}

#[test]
fn a_sweep_that_is_cancelled_while_it_waits_takes_its_trials_along() {
    let directory = tempfile::tempdir().unwrap();
    let (store, id, keys) = adopted(directory.path());
    store.set_sweep(&id, SweepState::Cancelled, Some("x")).unwrap();
    assert!(store.set_sweep(&id, SweepState::Running, None).is_err());
    let counts = store.sweep(&id).unwrap().unwrap().trials;
    assert_eq!((counts.cancelled, counts.total), (keys.len() as u64, keys.len() as u64));
}

#[test]
fn events_are_told_in_order_and_from_where_a_reader_was() {
    let directory = tempfile::tempdir().unwrap();
    let (store, id, keys) = adopted(directory.path());
    let newest = store.newest();
    store.set_sweep(&id, SweepState::Running, None).unwrap();
    assert!(newest.has_changed().unwrap());
    store.begin_trial(&id, keys[0], None).unwrap();
    let all = store.events(&id, 0, 100).unwrap();
    let kinds: Vec<_> = all.iter().map(|event| event.what.kind()).collect();
    assert_eq!(kinds, ["sweep", "sweep", "trial"]);
    assert!(all.windows(2).all(|pair| pair[0].id < pair[1].id));
    assert_eq!(store.events(&id, all[1].id, 100).unwrap(), all[2..]);
    assert_eq!(store.events(&id, 0, 1).unwrap(), all[..1]);
    assert_eq!(store.sweep(&id).unwrap().unwrap().last_event_id, all[2].id);
}

#[test]
fn what_was_recorded_before_there_was_a_database_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let (plan, keys) = plan();
    let folder = Folder::new(directory.path().to_owned());
    folder.prepare(&manifest(&plan, &[])).unwrap();
    let receipts = directory.path().join(".recorded");
    std::fs::create_dir(&receipts).unwrap();
    for (key, honest) in [(keys[0], true), (keys[1], false)] {
        let trial = folder.begin(key).unwrap();
        let text = summary(true).to_string();
        std::fs::write(trial.join("run_summary.json"), &text).unwrap();
        let digest = <sha2::Sha256 as sha2::Digest>::digest(if honest { text.as_bytes() } else { b"" });
        std::fs::write(receipts.join(key.to_string()), crate::job::hex(&digest)).unwrap();
    }
    let (store, id, _) = adopted(directory.path());
    assert_eq!(states(&store, &id)[..2], [(TrialState::Finished, 1), (TrialState::Queued, 0)]);
}

#[test]
fn a_cancel_that_was_answered_outlives_the_controller() {
    for begun in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (store, id, keys) = adopted(directory.path());
        if begun {
            store.set_sweep(&id, SweepState::Running, None).unwrap();
            store.begin_trial(&id, keys[0], None).unwrap();
        }
        store.ask_to_cancel(&id).unwrap();
        drop(store);
        let store = Store::open(directory.path()).unwrap();
        store.cancel_asked().unwrap();
        let view = store.sweep(&id).unwrap().unwrap();
        assert_eq!((view.state, view.trials.cancelled), (SweepState::Cancelled, keys.len() as u64));
        assert!(store.unfinished().unwrap().is_empty() && store.next_sweep().unwrap().is_none());
        assert!(matches!(store.ask_to_cancel(&id), Err(StoreError::State { .. })));
        // A resume takes the request back.
        store.requeue(&id, &[TrialState::Cancelled]).unwrap();
        store.set_sweep(&id, SweepState::Queued, None).unwrap();
        store.cancel_asked().unwrap();
        assert_eq!(store.next_sweep().unwrap().unwrap().id, id);
    }
}

#[test]
fn a_cancel_wins_over_a_stop_and_a_failure_but_not_over_the_last_record() {
    for (end, expected) in [
        (SweepState::Interrupted, SweepState::Cancelled),
        (SweepState::Failed, SweepState::Cancelled),
        (SweepState::Finished, SweepState::Finished),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let (store, id, _) = adopted(directory.path());
        store.set_sweep(&id, SweepState::Running, None).unwrap();
        store.ask_to_cancel(&id).unwrap();
        store.set_sweep(&id, end, Some("x")).unwrap();
        assert_eq!(store.sweep(&id).unwrap().unwrap().state, expected);
    }
}

#[test]
fn what_cannot_be_taken_over_whole_is_not_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let (plan, keys) = plan();
    let folder = Folder::new(directory.path().to_owned());
    folder.prepare(&manifest(&plan, &[])).unwrap();
    let receipts = directory.path().join(".recorded");
    std::fs::create_dir(&receipts).unwrap();
    let write = |key: TrialKey, text: &str| {
        let trial = folder.begin(key).unwrap();
        std::fs::write(trial.join("run_summary.json"), text).unwrap();
        let digest = <sha2::Sha256 as sha2::Digest>::digest(text.as_bytes());
        std::fs::write(receipts.join(key.to_string()), crate::job::hex(&digest)).unwrap();
    };
    write(keys[0], &summary(true).to_string());
    write(keys[1], "{ no JSON");
    let store = Store::open(directory.path()).unwrap();
    assert!(matches!(store.adopt(&plan, &keys, &[], false), Err(StoreError::Json(_))));
    assert!(store.sweeps(10).unwrap().is_empty());
    // Put right, all of it is taken over.
    write(keys[1], &summary(false).to_string());
    let id = store.adopt(&plan, &keys, &[], false).unwrap();
    assert_eq!(store.sweep(&id).unwrap().unwrap().trials.finished, 2);
}
