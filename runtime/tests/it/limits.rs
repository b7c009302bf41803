//! Limits of the bundle: memory, tasks, files, space. Each program that breaks one is beside one that keeps it.

use serde_json::json as value;

use crate::support::host::patience;
use crate::support::{code, json, printed, python, ready, stderr};

#[test]
fn a_child_that_fills_memory_is_killed_and_the_rest_goes_on() {
    if !ready() {
        return;
    }
    let program = "import os\n\
        pid = os.fork()\n\
        if pid == 0:\n\
        \x20   held = []\n\
        \x20   while True: held.append(b'x' * (16 << 20))\n\
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)\n\
        raise SystemExit(4)";
    let output = python(program).output().unwrap();
    assert_eq!((String::from_utf8_lossy(&output.stdout).trim(), output.status.code()), ("-9", Some(4)));
    assert!(stderr(&output).contains("for memory"), "{}", stderr(&output));
    // Within the limit of 512 MiB nothing happens.
    assert_eq!(printed("print(len(b'x' * (300 << 20)))"), (300u64 << 20).to_string());
}

#[test]
fn a_program_that_fills_memory_itself_ends_by_sigkill() {
    if !ready() {
        return;
    }
    assert_eq!(code(&mut python("held = []\nwhile True: held.append(b'x' * (16 << 20))")), 137);
}

#[test]
fn shared_memory_and_tmp_count_as_memory_and_are_bounded() {
    if !ready() {
        return;
    }
    let seen = json(
        "import errno, json\n\
         def fill(directory, mebibytes):\n\
         \x20   written = 0\n\
         \x20   try:\n\
         \x20       for number in range(mebibytes // 5):\n\
         \x20           with open('%s/%d' % (directory, number), 'wb') as file:\n\
         \x20               for _ in range(5):\n\
         \x20                   file.write(b'x' * (1 << 20)); file.flush(); written += 1\n\
         \x20   except OSError as error:\n\
         \x20       return [errno.errorcode[error.errno], written]\n\
         \x20   return ['none', written]\n\
         print(json.dumps([fill('/tmp', 5), fill('/tmp', 100), fill('/dev/shm', 40)]))",
    );
    assert_eq!(seen[0], value!(["none", 5]));
    assert_eq!(seen[1][0], "ENOSPC");
    assert!(seen[1][1].as_u64().unwrap() <= 64, "{seen}");
    assert_eq!(seen[2][0], "ENOSPC");
    assert!(seen[2][1].as_u64().unwrap() <= 16, "{seen}");
}

#[test]
fn one_file_is_bounded_as_well() {
    if !ready() {
        return;
    }
    let program = "import errno\n\
        with open('/tmp/sparse', 'wb') as file:\n\
        \x20   file.truncate(64 << 20)\n\
        \x20   try: file.truncate((64 << 20) + 1); print('grew')\n\
        \x20   except OSError as error: print(errno.errorcode[error.errno])";
    assert_eq!(printed(program), "EFBIG");
}

#[test]
fn the_number_of_files_is_bounded() {
    if !ready() {
        return;
    }
    let seen = json(
        "import errno, json\n\
         made = 0\n\
         try:\n\
         \x20   while made < 100000:\n\
         \x20       open('/tmp/%d' % made, 'w').close(); made += 1\n\
         \x20   why = 'none'\n\
         except OSError as error: why = errno.errorcode[error.errno]\n\
         print(json.dumps([made, why]))",
    );
    assert_eq!(seen[1], "ENOSPC");
    assert!((1000..4096).contains(&seen[0].as_u64().unwrap()), "{seen}");
}

#[test]
fn a_fork_bomb_meets_the_limit_on_tasks() {
    if !ready() {
        return;
    }
    let program = |count: u32| {
        format!(
            "import errno, os, time\n\
             made, why = 0, 'none'\n\
             for _ in range({count}):\n\
             \x20   try: pid = os.fork()\n\
             \x20   except OSError as error:\n\
             \x20       why = errno.errorcode[error.errno]; break\n\
             \x20   if pid == 0:\n\
             \x20       time.sleep(60); os._exit(0)\n\
             \x20   made += 1\n\
             print(made, why)"
        )
    };
    let begun = std::time::Instant::now();
    // The bundle allows 64 tasks, of which the program is one.
    assert_eq!(printed(&program(500)), "63 EAGAIN");
    assert_eq!(printed(&program(20)), "20 none");
    // Nobody waits for the sleeping children: the namespace's end is theirs.
    assert!(begun.elapsed().as_secs() < 50 * u64::from(patience()), "{:?}", begun.elapsed());
}

#[test]
fn open_files_and_core_dumps_are_bounded() {
    if !ready() {
        return;
    }
    let seen = json(
        "import errno, json, resource\n\
         files, why = [], 'none'\n\
         try:\n\
         \x20   while len(files) < 1000: files.append(open('/dev/null'))\n\
         except OSError as error: why = errno.errorcode[error.errno]\n\
         for file in files: file.close()\n\
         limits = {name: resource.getrlimit(getattr(resource, name)) for name in ['RLIMIT_CORE', 'RLIMIT_NOFILE', 'RLIMIT_FSIZE', 'RLIMIT_MEMLOCK']}\n\
         print(json.dumps([len(files), why, limits]))",
    );
    assert_eq!(seen[1], "EMFILE");
    assert!((200..=253).contains(&seen[0].as_u64().unwrap()), "{seen}");
    let wanted = value!({"RLIMIT_CORE": [0, 0], "RLIMIT_NOFILE": [256, 256], "RLIMIT_FSIZE": [67_108_864, 67_108_864], "RLIMIT_MEMLOCK": [65_536, 65_536]});
    assert_eq!(seen[2], wanted);
}

#[test]
fn cpu_time_is_shared_by_all_tasks_of_a_container() {
    if !ready()
        || !crate::support::host::need(std::thread::available_parallelism().unwrap().get() > 1, "two cores")
    {
        return;
    }
    // Two busy processes for two seconds: more than one CPU would give more than two seconds of CPU time.
    let used: f64 = printed(
        "import os, time\n\
         begun = os.times()\n\
         end = time.monotonic() + 2\n\
         pid = os.fork()\n\
         while time.monotonic() < end: pass\n\
         if pid == 0: os._exit(0)\n\
         os.waitpid(pid, 0)\n\
         times = os.times()\n\
         print(times.user + times.system + times.children_user + times.children_system - begun.user - begun.system)",
    )
    .parse()
    .unwrap();
    assert!(used < 2.6, "{used} s of CPU in 2 s of a container that may use one CPU");
}
