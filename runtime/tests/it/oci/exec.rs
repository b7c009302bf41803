//! `exec`: the process has everything that the container's own process has, and what was asked for besides.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::support::{SOON, has_range, texts, world};
use crate::support::host::wait_until;
use crate::support::rootless;

const YIELD: &str =
    "import ctypes; libc = ctypes.CDLL(None, use_errno=True); libc.sched_yield(); print(ctypes.get_errno())";

#[test]
fn the_containers_filter_user_capabilities_and_limits_hold() {
    let Some(world) = world() else { return };
    let (uid, gid) = if has_range() { (77, 88) } else { (0, 0) };
    world.configure(|config| {
        config["process"]["user"] = json!({"uid": uid, "gid": gid, "umask": 0o077});
        if !rootless() {
            config["process"]["user"]["additionalGids"] = json!([99]);
        }
        config["process"]["rlimits"] = json!([{"type": "RLIMIT_NOFILE", "soft": 50, "hard": 60}]);
        config["process"]["oomScoreAdj"] = json!(321);
        config["process"]["capabilities"] =
            json!({"bounding": ["CAP_KILL"], "permitted": [], "effective": []});
        config["linux"]["seccomp"] = json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "syscalls": [{"names": ["sched_yield"], "action": "SCMP_ACT_ERRNO", "errnoRet": 95}]
        });
    });
    let container = world.running();
    let code = format!(
        "{YIELD}\n\
         import json, os, resource\n\
         status = dict(l.split(':', 1) for l in open('/proc/self/status'))\n\
         groups = None if open('/proc/self/setgroups').read().strip() == 'deny' else os.getgroups()\n\
         print(json.dumps([os.getuid(), os.getgid(), groups, os.umask(0), resource.getrlimit(resource.RLIMIT_NOFILE),\n\
         \x20   open('/proc/self/oom_score_adj').read().strip(), [status[k].strip() for k in ('NoNewPrivs', 'Seccomp', 'CapBnd', 'CapEff')]]))"
    );
    let out = world.ok(&["exec", &container.id, "/usr/bin/python3", "-I", "-S", "-c", &code]);
    let groups = if rootless() { json!(null) } else { json!([99]) };
    let effective = "0000000000000000";
    let mut lines = out.lines();
    assert_eq!(lines.next(), Some("95"), "a refused call is refused in a process that joined, too");
    let seen: serde_json::Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!(
        seen,
        json!([uid, gid, groups, 0o077, [50, 60], "321", ["1", "2", "0000000000000020", effective]])
    );
}

#[test]
fn the_filter_is_loaded_without_no_new_privileges_as_well() {
    let Some(world) = world() else { return };
    world.configure(|config| {
        config["process"]["noNewPrivileges"] = json!(false);
        config["linux"]["seccomp"] = json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "syscalls": [{"names": ["sched_yield"], "action": "SCMP_ACT_ERRNO", "errnoRet": 95}]
        });
    });
    let container = world.running();
    let out = world.ok(&["exec", &container.id, "/usr/bin/python3", "-I", "-S", "-c", YIELD]);
    assert_eq!(out.trim(), "95");
}

#[test]
fn it_joins_every_namespace_and_the_cgroup() {
    let Some(world) = world() else { return };
    let container = world.running();
    let pid = container.state()["pid"].as_i64().unwrap();
    for name in ["pid", "mnt", "net", "ipc", "uts", "cgroup"] {
        let wanted = fs::read_link(format!("/proc/{pid}/ns/{name}")).unwrap();
        let code = format!("import os; print(os.readlink('/proc/self/ns/{name}'))");
        let found = world.ok(&["exec", &container.id, "/usr/bin/python3", "-I", "-S", "-c", &code]);
        assert_eq!(found.trim(), wanted.to_str().unwrap());
    }
    let pid_file = world.path("pid");
    let pid_file = pid_file.to_str().unwrap();
    world.ok(&["exec", "--detach", "--pid-file", pid_file, &container.id, "/bin/sleep", "200"]);
    let joined: i64 = fs::read_to_string(pid_file).unwrap().parse().unwrap();
    let cgroup = |pid: i64| fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    assert_eq!(cgroup(joined), cgroup(pid));
    let listed: Vec<i64> =
        serde_json::from_str(&world.ok(&["ps", "--format", "json", &container.id])).unwrap();
    assert!(listed.contains(&joined) && listed.contains(&pid), "{listed:?}");
    let table = world.ok(&["ps", &container.id]);
    assert!(table.contains("PID") && table.contains("sleep 200"), "{table}");
}

#[test]
fn a_user_namespace_is_joined_too() {
    let Some(world) = world() else { return };
    world.configure(|config| {
        if rootless() {
            return;
        }
        config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({"type": "user"}));
        config["linux"]["uidMappings"] = json!([{"containerID": 0, "hostID": 900_000, "size": 1000}]);
        config["linux"]["gidMappings"] = json!([{"containerID": 0, "hostID": 900_000, "size": 1000}]);
    });
    let container = world.running();
    let user = if has_range() { "3:4" } else { "0:0" };
    let code =
        "import os; print(os.getuid(), os.getgid(), open('/proc/self/uid_map').readline().split()[0:2])";
    let out = world.ok(&["exec", "--user", user, &container.id, "/usr/bin/python3", "-I", "-S", "-c", code]);
    let first = if rootless() { nix::unistd::getuid().as_raw() } else { 900_000 };
    assert_eq!(out.trim(), format!("{} ['0', '{first}']", user.replace(':', " ")));
}

#[test]
fn options_and_exit_codes() {
    let Some(world) = world() else { return };
    let container = world.running();
    let id = container.id.as_str();
    assert_eq!(container.shell("exit 5").0, 5);
    assert_eq!(container.shell("kill -9 $$").0, 137);
    let user = if has_range() { "5:6" } else { "0:0" };
    let out = world.ok(&[
        "exec",
        "--cwd",
        "/tmp",
        "--env",
        "A=1",
        "--env",
        "PATH=/bin",
        "--user",
        user,
        id,
        "/bin/sh",
        "-c",
        "echo $PWD $A $PATH; grep -E '^(Uid|Gid)' /proc/self/status | tr -s '\\t\\n' ' '",
    ]);
    let (uid, gid) = user.split_once(':').unwrap();
    assert_eq!(out.trim(), format!("/tmp 1 /bin\nUid: {uid} {uid} {uid} {uid} Gid: {gid} {gid} {gid} {gid}"));
    for (args, word) in [
        (&["exec", id, "no-such"][..], "not found"),
        (&["exec", id, "/data/file"], "permission denied"),
        (&["exec", "--cwd", "/absent", id, "/bin/true"], "/absent"),
        (&["exec", "--cwd", "relative", id, "/bin/true"], "absolute"),
        (&["exec", "--user", "name", id, "/bin/true"], "--user"),
        (&["exec", "--env", "A", id, "/bin/true"], "NAME=VALUE"),
        (&["exec", "--cap", "CAP_NONE", id, "/bin/true"], "CAP_NONE"),
        (&["exec", "--detach", "--tty", id, "/bin/true"], "--console-socket"),
        (&["exec", id], "no program"),
    ] {
        let output = world.output(args);
        let (_, err) = texts(&output);
        assert_eq!(output.status.code(), Some(255), "{args:?}: {err}");
        assert!(err.contains(word), "{args:?}: {err}");
    }
    assert_eq!(container.status(), "running");
}

#[test]
fn a_process_file_is_taken_as_it_is() {
    let Some(world) = world() else { return };
    let container = world.running();
    let file = world.path("process.json");
    let process = json!({
        "args": ["/bin/sh", "-c", "echo $X; exit 4"], "env": ["X=y", "PATH=/bin"], "cwd": "/tmp",
        "user": {"uid": u32::from(has_range()), "gid": 0}
    });
    fs::write(&file, process.to_string()).unwrap();
    let output = world.output(&["exec", "--process", file.to_str().unwrap(), &container.id]);
    assert_eq!((output.status.code(), texts(&output).0.trim()), (Some(4), "y"));
    fs::write(&file, "{").unwrap();
    let output = world.output(&["exec", "-p", file.to_str().unwrap(), &container.id]);
    assert_eq!(output.status.code(), Some(255));
}

#[test]
fn a_paused_container_takes_no_process_unless_told_to() {
    let Some(world) = world() else { return };
    let container = world.running();
    world.ok(&["pause", &container.id]);
    assert_eq!(container.status(), "paused");
    let output = world.output(&["exec", &container.id, "/bin/true"]);
    assert!(texts(&output).1.contains("paused"));
    assert!(world.refused(&["pause", &container.id]).contains("paused"));
    world.ok(&["resume", &container.id]);
    assert_eq!((container.status().as_str(), container.shell("echo on").1.as_str()), ("running", "on"));
}

#[test]
fn detached_processes_end_with_the_container() {
    let Some(world) = world() else { return };
    let container = world.running();
    let pid_file = world.path("pid");
    world.ok(&["exec", "-d", "--pid-file", pid_file.to_str().unwrap(), &container.id, "/bin/sleep", "200"]);
    let pid = fs::read_to_string(pid_file).unwrap();
    world.ok(&["delete", "--force", &container.id]);
    wait_until("the end of a detached process", SOON, || {
        let status = fs::read_to_string(Path::new("/proc").join(&pid).join("status")).unwrap_or_default();
        status.is_empty() || status.contains("State:\tZ")
    });
}

#[test]
fn a_container_that_made_groups_of_its_own_can_be_entered() {
    let Some(world) = world() else { return };
    if !Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        // Only there a group with limited children may hold no process.
        return;
    }
    world.python(
        "import os, time\n\
         root = '/sys/fs/cgroup'\n\
         os.mkdir(root + '/leaf')\n\
         open(root + '/leaf/cgroup.procs', 'w').write('0')\n\
         open(root + '/cgroup.subtree_control', 'w').write('+pids')\n\
         while True: time.sleep(60)",
        |config| {
            config["mounts"].as_array_mut().unwrap().push(json!({
                "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["nosuid", "rw"]
            }));
            config["root"] = json!({"path": world.own_rootfs()});
        },
    );
    let container = world.running();
    let pid = container.state()["pid"].as_i64().unwrap();
    wait_until("the container's own group", SOON, || {
        fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap().trim().ends_with("/leaf")
    });
    wait_until("a controller in it", SOON, || container.shell("cat /sys/fs/cgroup/leaf/pids.current").0 == 0);
    let (code, text) = container.shell("cat /proc/self/cgroup");
    assert_eq!((code, text.as_str()), (0, "0::/leaf"));
}
