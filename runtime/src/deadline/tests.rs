//! Lives of programs, by readings of the tests' own: when they end, and why.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn limits(cpu_ms: u64, wall_ms: u64, wall_most_ms: u64) -> Limits {
    Limits {
        cpu_ms,
        wall_ms,
        wall_most_ms,
        memory_bytes: 0,
        pids: 0,
        cpu_millis: 1000,
        output_bytes: 0,
        flood_bytes: 0,
        file_bytes: 0,
        open_files: 0,
    }
}

fn five_seconds() -> Deadline {
    Deadline::new(&limits(5000, 5000, 20_000), 1.0, Reading::default())
}

/// Lets a container live whose readings are given as a function of the time, and says when it ended and why,
/// and how often it was looked at.
fn live(mut deadline: Deadline, reading: impl Fn(Duration) -> Reading) -> (f64, Limit, u32) {
    let (mut at, mut looks) = (deadline.first(), 0);
    loop {
        looks += 1;
        assert!(looks < 1000, "looked at too often");
        match deadline.read(Reading { at, ..reading(at) }) {
            Due::Over(limit) => return (at.as_secs_f64(), limit, looks),
            Due::At(next) => {
                assert!(next > at, "no progress");
                at = next;
            }
        }
    }
}

/// One task that runs and waits by fixed shares, the rest it sleeps.
fn one(run: f64, wait: f64) -> impl Fn(Duration) -> Reading {
    move |at| {
        let task = Task { ran: at.mul_f64(run), waited: at.mul_f64(wait) };
        Reading { cpu: task.ran, tasks: HashMap::from([(1, task)]), ..Reading::default() }
    }
}

fn near(got: f64, wanted: f64) {
    assert!((wanted - 1e-6..=wanted + 0.05).contains(&got), "{got}, wanted {wanted} and at most 50 ms more");
}

#[test]
fn a_sleeper_ends_at_the_wall_limit() {
    let (at, limit, looks) = live(five_seconds(), one(0.0, 0.0));
    assert_eq!(limit, Limit::Wall);
    near(at, 5.0);
    assert!(looks <= LOOKS + 1, "{looks}");
}

#[test]
fn a_busy_program_alone_ends_at_its_cpu_limit() {
    let (at, limit, _) = live(five_seconds(), one(1.0, 0.0));
    assert_eq!(limit, Limit::Cpu);
    near(at, 5.0);
}

#[test]
fn a_busy_program_that_shares_the_cpu_gets_all_its_cpu_time() {
    for share in [0.9, 0.5, 0.3] {
        let (at, limit, looks) = live(five_seconds(), one(share, 1.0 - share));
        assert_eq!(limit, Limit::Cpu, "{share}");
        near(at, 5.0 / share);
        assert!(looks < 100, "{looks}");
    }
}

/// The kernel adds a wait to its count when it is over: of what goes on, nothing is known.
#[test]
fn a_busy_program_of_whose_waits_some_are_missed_had_its_cpu_time_all_the_same() {
    let (at, limit, _) = live(five_seconds(), one(0.3, 0.69));
    assert_eq!(limit, Limit::Cpu);
    near(at, 5.0 / 0.31);
    let (at, limit, _) = live(five_seconds(), one(0.3, 0.6));
    assert_eq!(limit, Limit::Wall);
    near(at, 5.0 / 0.4);
}

#[test]
fn waiting_extends_the_wall_clock_up_to_its_bound() {
    let (at, limit, _) = live(five_seconds(), one(0.1, 0.9));
    assert_eq!(limit, Limit::Wall);
    near(at, 20.0);
    // Half of the time it sleeps by itself; that is its own.
    let (at, limit, _) = live(five_seconds(), one(0.2, 0.3));
    assert_eq!(limit, Limit::Wall);
    near(at, 5.0 / 0.7);
}

#[test]
fn busy_siblings_that_wait_for_each_other_gain_nothing() {
    let sixty = |at: Duration| {
        let task = Task { ran: at / 60, waited: at - at / 60 };
        Reading { cpu: at, tasks: (0..60).map(|number| (number, task)).collect(), ..Reading::default() }
    };
    let (at, limit, _) = live(five_seconds(), sixty);
    assert_eq!(limit, Limit::Cpu);
    near(at, 5.0);
}

/// Each of sixty wakes with the others, runs a moment and sleeps: together they wait thirty times what they run.
#[test]
fn short_bursts_of_many_processes_gain_nothing() {
    let bursts = |at: Duration| {
        let ran = at.mul_f64(0.0005);
        let tasks =
            (0..60).map(|number| (number, Task { ran, waited: ran * u32::try_from(number).unwrap() }));
        Reading { cpu: ran * 60, tasks: tasks.collect(), ..Reading::default() }
    };
    let (at, limit, _) = live(five_seconds(), bursts);
    assert_eq!(limit, Limit::Wall);
    near(at, 5.0);
}

/// Two CPUs for half of each period, then its own quota holds it back.
#[test]
fn waiting_for_the_own_quota_gains_nothing() {
    let throttled = |at: Duration| {
        let task = Task { ran: at / 2, waited: at / 2 };
        let tasks = HashMap::from([(1, task), (2, task)]);
        Reading { cpu: at, tasks, stalled: at / 2, ..Reading::default() }
    };
    let (at, limit, _) = live(five_seconds(), throttled);
    assert_eq!(limit, Limit::Cpu);
    near(at, 5.0);
}

#[test]
fn what_the_process_beside_it_waits_is_not_the_programs_time() {
    let asked = |at: Duration| Reading { beside: at / 2, ..one(0.1, 0.0)(at) };
    let (at, limit, _) = live(five_seconds(), asked);
    assert_eq!(limit, Limit::Wall);
    near(at, 10.0);
    // While the program runs, it does not wait for anybody.
    let (at, limit, _) = live(five_seconds(), |at| Reading { beside: at, ..one(0.9, 0.1)(at) });
    assert_eq!(limit, Limit::Cpu);
    near(at, 5.0 / 0.9);
}

#[test]
fn a_cgroups_own_count_of_stalls_serves_where_tasks_are_gone() {
    let children = |at: Duration| Reading { cpu: at / 2, stalled: at / 2, ..Reading::default() };
    let (at, limit, _) = live(five_seconds(), children);
    assert_eq!(limit, Limit::Cpu);
    near(at, 10.0);
}

#[test]
fn a_child_is_counted_from_its_birth_against_what_ran_meanwhile() {
    let before = Reading {
        at: 3 * SECOND,
        cpu: 3 * SECOND,
        tasks: HashMap::from([(1, Task { ran: 3 * SECOND, waited: Duration::ZERO })]),
        ..Reading::default()
    };
    let mut after = before.clone();
    after.at += SECOND;
    after.cpu += SECOND / 4;
    after.tasks.insert(2, Task { ran: SECOND / 4, waited: SECOND / 2 });
    assert_eq!(lost_between(&before, &after, 1.0), SECOND / 2);
}

#[test]
fn what_was_used_before_the_start_is_taken_off_by_the_reader_and_counters_never_run_back() {
    let before = Reading { beside: SECOND, stalled: SECOND, ..one(1.0, 1.0)(SECOND) };
    let after = Reading { at: SECOND, ..Reading::default() };
    assert_eq!(lost_between(&before, &after, 1.0), Duration::ZERO);
}

#[test]
fn without_limits_that_need_a_reading_none_is_made() {
    assert!(Deadline::is_plain(&limits(u64::MAX, 1000, 1000)));
    assert!(!Deadline::is_plain(&limits(u64::MAX, 1000, 1001)));
    assert!(!Deadline::is_plain(&limits(1000, 1000, 1000)));
    // Ten years do not overflow.
    let endless = limits(u64::MAX, u64::MAX, u64::MAX);
    let mut deadline = Deadline::new(&endless, 2.0, Reading::default());
    assert!(deadline.first() > SECOND);
    assert!(matches!(deadline.read(Reading { at: SECOND, ..Reading::default() }), Due::At(_)));
}

#[test]
fn several_cpus_reach_the_limit_sooner() {
    let deadline = Deadline::new(&limits(4000, 100_000, 100_000), 4.0, Reading::default());
    assert_eq!(deadline.first(), SECOND);
}
