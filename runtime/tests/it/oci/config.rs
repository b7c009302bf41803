//! What a program finds of its `process` and `linux` sections.

use serde_json::{Value, json};

use super::support::{cgroups, has_range, world};
use crate::support::rootless;

fn status_of(field: &str) -> String {
    format!("next(l.split(':')[1].strip() for l in open('/proc/self/status') if l.startswith('{field}:'))")
}

#[test]
fn user_groups_umask_environment_and_directory() {
    let Some(world) = world() else { return };
    let (uid, gid) = if has_range() { (1234, 5678) } else { (0, 0) };
    // An ordinary user may not change supplementary groups; asking for some is refused below.
    let groups = if rootless() { json!([]) } else { json!([10, 20]) };
    let kept = if rootless() { json!(null) } else { groups.clone() };
    let seen = world.seen(
        "import json, os\n\
         mask = os.umask(0)\n\
         groups = None if open('/proc/self/setgroups').read().strip() == 'deny' else sorted(os.getgroups())\n\
         print(json.dumps([os.getuid(), os.getgid(), groups, mask, dict(os.environ), os.getcwd()]))",
        |config| {
            config["process"]["user"] =
                json!({"uid": uid, "gid": gid, "additionalGids": groups, "umask": 0o027});
            config["process"]["env"] = json!(["PATH=/usr/bin:/bin", "A=b=c", "HOME=/tmp", "EMPTY="]);
            config["process"]["cwd"] = json!("/tmp");
        },
    );
    assert_eq!(
        seen,
        json!([uid, gid, kept, 0o027, {"PATH": "/usr/bin:/bin", "A": "b=c", "HOME": "/tmp", "EMPTY": ""}, "/tmp"])
    );
    if rootless() {
        world.configure(|config| config["process"]["user"]["additionalGids"] = json!([10]));
        let bundle = world.bundle();
        world.refused(&["create", "--bundle", bundle.to_str().unwrap(), "refused"]);
    }
}

#[test]
fn resource_limits_and_oom_score() {
    let Some(world) = world() else { return };
    let seen = world.seen(
        "import json, resource\n\
         get = lambda name: resource.getrlimit(getattr(resource, name))\n\
         print(json.dumps([get('RLIMIT_NOFILE'), get('RLIMIT_CORE'), get('RLIMIT_STACK'), int(open('/proc/self/oom_score_adj').read())]))",
        |config| {
            config["process"]["rlimits"] = json!([
                {"type": "RLIMIT_NOFILE", "soft": 100, "hard": 200},
                {"type": "RLIMIT_CORE", "soft": 0, "hard": 0},
                {"type": "RLIMIT_STACK", "soft": 1_048_576, "hard": 2_097_152}
            ]);
            config["process"]["oomScoreAdj"] = json!(500);
        },
    );
    assert_eq!(seen, json!([[100, 200], [0, 0], [1_048_576, 2_097_152], 500]));
}

#[test]
fn capabilities_are_exactly_those_asked_for() {
    let Some(world) = world() else { return };
    let code = format!(
        "import json; print(json.dumps([{}, {}, {}, {}, {}]))",
        status_of("CapBnd"),
        status_of("CapEff"),
        status_of("CapPrm"),
        status_of("CapInh"),
        status_of("CapAmb")
    );
    let none = "0000000000000000";
    let seen = world.seen(&code, |config| {
        config["process"].as_object_mut().unwrap().remove("capabilities");
    });
    assert_eq!(seen, json!([none, none, none, none, none]), "an absent section grants nothing");
    let seen = world.seen(&code, |config| {
        if has_range() {
            config["process"]["user"] = json!({"uid": 7, "gid": 7});
        }
        let set = json!(["CAP_NET_BIND_SERVICE", "CAP_KILL"]);
        config["process"]["capabilities"] = json!({
            "bounding": ["CAP_NET_BIND_SERVICE", "CAP_KILL", "CAP_CHOWN"], "effective": set, "permitted": set,
            "inheritable": set, "ambient": ["CAP_KILL"]
        });
    });
    // KILL is 5, NET_BIND_SERVICE 10, CHOWN 0. An ordinary user keeps over execve what is ambient.
    let (bounding, both, kill) = ("0000000000000421", "0000000000000420", "0000000000000020");
    // User 0 keeps over execve what is permitted; no_new_privs keeps it from getting the rest of the bounding set.
    let kept = if has_range() { kill } else { both };
    assert_eq!(seen, json!([bounding, kept, kept, both, kill]));
}

#[test]
fn no_new_privileges_is_set_where_asked_for() {
    let Some(world) = world() else { return };
    let code = format!("print({})", status_of("NoNewPrivs"));
    assert_eq!(world.seen(&code, |_| {}), 1);
    assert_eq!(world.seen(&code, |config| config["process"]["noNewPrivileges"] = json!(false)), 0);
}

fn seccomp() -> Value {
    json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ["SCMP_ARCH_X86_64"],
        "syscalls": [{"names": ["sched_yield"], "action": "SCMP_ACT_ERRNO", "errnoRet": 95}]
    })
}

const YIELD: &str = "import ctypes\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    libc.sched_yield(); print(ctypes.get_errno())";

#[test]
fn seccomp_refuses_with_and_without_no_new_privileges() {
    let Some(world) = world() else { return };
    assert_eq!(world.seen(YIELD, |_| {}), 0, "the twin without a filter");
    for no_new_privileges in [json!(true), json!(false), Value::Null] {
        let seen = world.seen(YIELD, |config| {
            config["linux"]["seccomp"] = seccomp();
            config["process"]["noNewPrivileges"] = no_new_privileges.clone();
        });
        assert_eq!(seen, 95, "{no_new_privileges}");
    }
}

#[test]
fn names_and_sysctls() {
    let Some(world) = world() else { return };
    let seen = world.seen(
        "import json, socket\n\
         read = lambda path: open('/proc/sys/' + path).read().strip()\n\
         print(json.dumps([socket.gethostname(), read('kernel/domainname'), read('net/ipv4/ip_forward'), read('kernel/shmmni')]))",
        |config| {
            config["domainname"] = json!("example.org");
            config["linux"]["sysctl"] = json!({"net.ipv4.ip_forward": "1", "kernel.shmmni": "1000"});
        },
    );
    assert_eq!(seen, json!(["inside", "example.org", "1", "1000"]));
    for (name, value) in [("kernel.panic", "1"), ("vm.swappiness", "1")] {
        world.configure(|config| config["linux"]["sysctl"] = json!({name: value}));
        let bundle = world.bundle();
        let message = world.refused(&["create", "--bundle", bundle.to_str().unwrap(), "refused"]);
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn namespaces_are_new_unless_a_path_joins_one() {
    let Some(world) = world() else { return };
    let code = "import json, os\n\
        print(json.dumps({n: os.readlink('/proc/self/ns/' + n) for n in ('pid', 'mnt', 'net', 'ipc', 'uts', 'cgroup')}))";
    let own = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
    let seen = world.seen(code, |_| {});
    for name in ["pid", "mnt", "net", "ipc", "uts", "cgroup"] {
        assert_ne!(seen[name].as_str().unwrap(), own(name).to_str().unwrap(), "{name}");
    }
    if rootless() {
        // The namespaces of another container belong to its user namespace; joining them is root's.
        return;
    }
    world.configure(|_| {});
    let first = world.running();
    let pid = first.state()["pid"].as_i64().unwrap();
    let theirs = |name: &str| std::fs::read_link(format!("/proc/{pid}/ns/{name}")).unwrap();
    let seen = world.seen(code, |config| {
        config.as_object_mut().unwrap().remove("hostname");
        config["linux"]["namespaces"] = json!([
            {"type": "mount"}, {"type": "network", "path": format!("/proc/{pid}/ns/net")},
            {"type": "ipc", "path": format!("/proc/{pid}/ns/ipc")},
            {"type": "uts", "path": format!("/proc/{pid}/ns/uts")},
            {"type": "pid", "path": format!("/proc/{pid}/ns/pid")}
        ]);
    });
    for name in ["net", "ipc", "uts", "pid"] {
        assert_eq!(seen[name].as_str().unwrap(), theirs(name).to_str().unwrap(), "{name}");
    }
    assert_ne!(seen["mnt"].as_str().unwrap(), own("mnt").to_str().unwrap());
    assert_eq!(seen["cgroup"].as_str().unwrap(), own("cgroup").to_str().unwrap(), "not named, so inherited");
    world.configure(|config| {
        config["linux"]["namespaces"] =
            json!([{"type": "mount"}, {"type": "network", "path": "/proc/self/ns/uts"}]);
        config.as_object_mut().unwrap().remove("hostname");
    });
    let bundle = world.bundle();
    world.refused(&["create", "--bundle", bundle.to_str().unwrap(), "refused"]);
}

#[test]
fn a_user_namespace_maps_ids_as_asked() {
    let Some(world) = world() else { return };
    if rootless() {
        let seen = world.seen("print(len(open('/proc/self/uid_map').readlines()))", |_| {});
        assert_eq!(seen, if has_range() { 2 } else { 1 });
        return;
    }
    let seen = world.seen(
        "import json, os\n\
         read = lambda name: open('/proc/self/' + name).read().split()\n\
         print(json.dumps([os.getuid(), os.getgid(), read('uid_map'), read('gid_map')]))",
        |config| {
            let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
            namespaces.push(json!({"type": "user"}));
            config["linux"]["uidMappings"] = json!([{"containerID": 0, "hostID": 900_000, "size": 1000}]);
            config["linux"]["gidMappings"] = json!([{"containerID": 0, "hostID": 910_000, "size": 1000}]);
            config["process"]["user"] = json!({"uid": 5, "gid": 6});
        },
    );
    assert_eq!(seen, json!([5, 6, ["0", "900000", "1000"], ["0", "910000", "1000"]]));
}

#[test]
fn devices_have_the_numbers_and_modes_asked_for() {
    let Some(world) = world() else { return };
    if rootless() {
        // Only the host's own nodes can be had, by bind mounts.
        let seen = world.seen(
            "import os; s = os.stat('/dev/null'); print([os.major(s.st_rdev), os.minor(s.st_rdev)])",
            |_| {},
        );
        assert_eq!(seen, json!([1, 3]));
        return;
    }
    let seen = world.seen(
        "import json, os, stat\n\
         def look(path):\n\
         \x20   s = os.stat(path)\n\
         \x20   return [stat.filemode(s.st_mode), s.st_uid, s.st_gid, os.major(s.st_rdev), os.minor(s.st_rdev)]\n\
         default = [name for name in ('null', 'zero', 'full', 'random', 'urandom', 'tty', 'ptmx') if os.path.exists('/dev/' + name)]\n\
         links = {n: os.readlink('/dev/' + n) for n in ('fd', 'stdin', 'stdout', 'stderr')}\n\
         print(json.dumps([look('/dev/ours'), look('/dev/pipe')[:3], default, links]))",
        |config| {
            config["linux"]["devices"] = json!([
                {"path": "/dev/ours", "type": "c", "major": 1, "minor": 3, "fileMode": 0o640, "uid": 11, "gid": 12},
                {"path": "/dev/pipe", "type": "p", "fileMode": 0o600, "uid": 1, "gid": 2}
            ]);
        },
    );
    assert_eq!(seen[0], json!(["crw-r-----", 11, 12, 1, 3]));
    assert_eq!(seen[1], json!(["prw-------", 1, 2]));
    assert_eq!(seen[2], json!(["null", "zero", "full", "random", "urandom", "tty", "ptmx"]));
    assert_eq!(
        seen[3],
        json!({"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"})
    );
}

#[test]
fn rules_for_devices_are_in_force() {
    let Some(world) = world() else { return };
    if rootless() {
        // An ordinary user's container cannot make the node in the first place.
        return;
    }
    let code = "import errno, json, os\n\
        def attempt(flags):\n\
        \x20   try: os.close(os.open('/dev/ours', flags)); return 'opened'\n\
        \x20   except OSError as error: return errno.errorcode[error.errno]\n\
        open('/dev/null', 'w').write('x')\n\
        print(json.dumps([attempt(os.O_RDONLY), attempt(os.O_WRONLY)]))";
    // No driver has this number: where the rules admit the call, the kernel says ENXIO.
    let node = json!([{"path": "/dev/ours", "type": "c", "major": 240, "minor": 77, "fileMode": 0o666, "uid": 0, "gid": 0}]);
    let mut rules = vec![json!({"allow": false, "access": "rwm"})];
    let seen = |rules: &[Value]| {
        world.seen(code, |config| {
            config["linux"]["devices"] = node.clone();
            config["linux"]["resources"]["devices"] = json!(rules);
        })
    };
    assert_eq!(seen(&rules), json!(["EPERM", "EPERM"]));
    rules.push(json!({"allow": true, "type": "c", "major": 240, "minor": 77, "access": "r"}));
    assert_eq!(seen(&rules), json!(["ENXIO", "EPERM"]));
}

#[test]
fn a_program_is_found_in_the_path_and_its_name_is_its_own() {
    let Some(world) = world() else { return };
    world.configure(|config| config["process"]["args"] = json!(["echo", "a  b", ""]));
    assert_eq!(world.run().1, "a  b");
    let container = world.id();
    world.configure(|config| config["process"]["args"] = json!(["/usr/bin/no-such"]));
    let bundle = world.bundle();
    let message = world.refused(&["create", "--bundle", bundle.to_str().unwrap(), &container.id]);
    assert!(message.contains("no such file or directory"), "{message}");
    world.configure(|config| config["process"]["args"] = json!(["/data/file"]));
    let message = world.refused(&["create", "--bundle", bundle.to_str().unwrap(), &container.id]);
    assert!(message.contains("permission denied"), "{message}");
}

/// The cgroup below which this caller may make others.
fn base() -> String {
    if !rootless() {
        return String::new();
    }
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap();
    own.strip_suffix("/rlox-service").unwrap_or(own).to_owned()
}

#[test]
fn the_container_is_in_the_cgroup_that_was_asked_for() {
    let Some(world) = world() else { return };
    let container = world.id();
    let path = format!("{}/rlox-{}/inner", base(), container.id);
    world.configure(|config| config["linux"]["cgroupsPath"] = json!(path));
    let bundle = world.bundle();
    world.ok(&["create", "--bundle", bundle.to_str().unwrap(), &container.id]);
    let pid = container.state()["pid"].as_i64().unwrap();
    let membership = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    assert!(membership.lines().any(|line| line.ends_with(&path)), "{membership}");
    world.ok(&["delete", &container.id]);
    // The parent was made for the container as well; it is not the runtime's to remove.
    for parent in cgroups(&container.id) {
        assert!(!parent.join("inner").exists());
        std::fs::remove_dir(parent).unwrap();
    }
    world.configure(|config| config["linux"]["cgroupsPath"] = json!("/a/../../b"));
    assert!(world.refused(&["create", "--bundle", bundle.to_str().unwrap(), "refused"]).contains(".."));
}

#[test]
fn a_cgroup_that_somebody_is_in_is_refused_and_they_live() {
    let Some(world) = world() else { return };
    let first = world.running();
    let bundle = world.bundle();
    let path = format!("{}/rlox-{}", base(), first.id);
    for limited in [false, true] {
        world.configure(|config| {
            config["linux"]["cgroupsPath"] = json!(path);
            if limited {
                config["linux"]["resources"]["pids"] = json!({"limit": 20});
            }
        });
        let message = world.refused(&["create", "--bundle", bundle.to_str().unwrap(), "refused"]);
        assert!(message.contains("processes already"), "{message}");
        world.ok(&["delete", "--force", "refused"]);
        assert_eq!(first.status(), "running");
    }
    for whole in [".", "./", "/."] {
        world.configure(|config| config["linux"]["cgroupsPath"] = json!(whole));
        let message = world.refused(&["create", "--bundle", bundle.to_str().unwrap(), "refused"]);
        assert!(message.contains("no cgroup of its own"), "{message}");
    }
    assert_eq!(first.status(), "running");
}

#[test]
fn the_loopback_of_a_new_network_is_usable() {
    let Some(world) = world() else { return };
    let seen = world.seen(
        "import json, socket\n\
         server = socket.create_server(('127.0.0.1', 0))\n\
         client = socket.create_connection(server.getsockname())\n\
         client.sendall(b'hello')\n\
         print(json.dumps([server.accept()[0].recv(5).decode(), [name for _, name in socket.if_nameindex()]]))",
        |_| {},
    );
    assert_eq!(seen, json!(["hello", ["lo"]]));
}

#[test]
fn a_working_directory_that_is_missing_is_made() {
    let Some(world) = world() else { return };
    let rootfs = world.own_rootfs();
    let outside = world.path("outside");
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, rootfs.join("link")).unwrap();
    world.python("import os; print(os.getcwd())", |config| {
        config["root"] = json!({"path": rootfs});
        config["process"]["cwd"] = json!("/deep/er/still");
    });
    let (code, out, err) = world.run();
    assert_eq!((code, out.as_str()), (0, "/deep/er/still"), "{err}");
    world.python("import os; print(os.getcwd())", |config| {
        config["root"] = json!({"path": rootfs});
        config["process"]["cwd"] = json!("/link/inside");
    });
    world.run();
    assert!(!outside.join("inside").exists(), "a link of the image leads to nothing of the host");
}
