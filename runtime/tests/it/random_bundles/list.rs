//! The parts themselves.

use serde_json::{Value, json};

use super::parts::{Part, hook, mount, own_root, push};

/// Kinds of hooks whose failure fails `create` or `start`.
const DECIDING: [&str; 4] = ["prestart", "createRuntime", "createContainer", "poststart"];
const KINDS: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

fn seccomp(config: &mut Value, default: &str, rules: Value) {
    config["linux"]["seccomp"] =
        json!({"defaultAction": default, "architectures": ["SCMP_ARCH_X86_64"], "syscalls": rules});
}

fn without_namespaces(config: &mut Value, gone: &[&str]) {
    let list = config["linux"]["namespaces"].as_array_mut().unwrap();
    list.retain(|each| !gone.contains(&each["type"].as_str().unwrap()));
    if gone.contains(&"uts") {
        config.as_object_mut().unwrap().remove("hostname");
    }
}

pub(crate) const PARTS: &[Part] = &[
    // The document as a whole.
    Part::bad("text", |config, place| {
        let text = config.to_string();
        place.text = Some(text[..place.dice.below(text.len())].to_owned());
    }),
    Part::bad("text", |_, place| {
        place.text = Some(place.dice.pick(&["", "null", "[]", "{}", "\0", "\u{1b}[2J{"]).to_owned());
    }),
    Part::bad("version", |config, place| {
        config["ociVersion"] = json!(place.dice.pick(&["", "2.0.0", "1", "1.0.x", "a\nb"]))
    }),
    Part::bad("root", |config, _| drop(config.as_object_mut().unwrap().remove("root"))),
    Part::bad("root", |config, _| config["root"]["path"] = json!("/nonexistent/root\nfs")),
    Part::good("annotations", |config, _| config["annotations"] = json!({"k": "v", "": "\n\u{0}"})),
    // Namespaces.
    Part::good("namespaces", |config, _| without_namespaces(config, &["ipc"])),
    Part::good("namespaces", |config, _| without_namespaces(config, &["network", "uts", "cgroup"])),
    Part::either("namespaces", |config, _| without_namespaces(config, &["pid"])),
    Part::either("namespaces", |config, _| {
        push(config, &["linux", "namespaces"], json!({"type": "user"}));
        let mappings = json!([{"containerID": 0, "hostID": 900_000, "size": 65_536}]);
        config["linux"]["uidMappings"] = mappings.clone();
        config["linux"]["gidMappings"] = mappings;
    }),
    Part::either("namespaces", |config, place| {
        push(config, &["linux", "namespaces"], json!({"type": "user"}));
        let (first, size) = place.dice.pick(&[(u32::MAX, 2), (0, 0), (5, 1), (0, u32::MAX)]);
        config["linux"]["uidMappings"] = json!([{"containerID": first, "hostID": first, "size": size}]);
    }),
    Part::bad("namespaces", |config, _| push(config, &["linux", "namespaces"], json!({"type": "pid"}))),
    Part::bad("namespaces", |config, place| {
        without_namespaces(config, &["network"]);
        let path = place.dice.pick(&["/nonexistent", "relative", "/proc/self/ns/uts", "/dev/null", "/a\0b"]);
        push(config, &["linux", "namespaces"], json!({"type": "network", "path": path}));
    }),
    Part::bad("namespaces", |config, _| push(config, &["linux", "namespaces"], json!({"type": "wormhole"}))),
    // Mounts.
    Part::good("mounts", |config, place| {
        own_root(config, place, &[]);
        mount(
            config,
            json!({"destination": "/new/place", "type": "tmpfs", "options": ["nosuid", "size=64k"]}),
        );
        mount(config, json!({"destination": "/new/bind", "source": "/usr", "options": ["rbind", "ro"]}));
    }),
    // Not known to the form for one program.
    Part::either("mounts", |config, place| {
        own_root(config, place, &[]);
        mount(config, json!({"destination": "data", "type": "tmpfs", "options": ["tmpcopyup"]}));
    }),
    Part::bad("mounts", |config, place| {
        own_root(config, place, &[]);
        let (source, options) =
            place.dice.pick(&[("/nonexistent", "bind"), ("missing", "rbind"), ("/a\0b", "bind")]);
        mount(config, json!({"destination": "/tmp", "source": source, "options": [options]}));
    }),
    Part::bad("mounts", |config, _| mount(config, json!({"destination": "/tmp", "options": ["bind"]}))),
    Part::bad("mounts", |config, place| {
        own_root(config, place, &[]);
        mount(
            config,
            json!({"destination": "/tmp", "type": place.dice.pick(&["nosuchfs", "ext4", "", "a\nb"]), "source": "x"}),
        );
    }),
    Part::bad("mounts", |config, place| {
        let destination = place.dice.pick(&["/proc", "/proc/self/attr", "/x/../proc/sys", "proc"]);
        mount(config, json!({"destination": destination, "type": "tmpfs", "source": "tmpfs"}));
    }),
    Part::either("mounts", |config, place| {
        own_root(config, place, &[]);
        let destination = place.dice.pick(&[
            "/",
            "",
            "/..",
            "/tmp/../../usr",
            "/data/file",
            "/data/file/below",
            "/bin/sh",
            "/dev/pts",
        ]);
        mount(config, json!({"destination": destination, "type": "tmpfs", "source": "tmpfs"}));
    }),
    Part::either("mounts", |config, place| {
        own_root(config, place, &[]);
        let option = place.dice.pick(&[
            "bogus", "size=x", "mode=9", "uid=-1", "", "a\0b", "idmap", "rshared", "remount", "size=0",
        ]);
        mount(
            config,
            json!({"destination": "/data", "type": "tmpfs", "source": "tmpfs", "options": [option]}),
        );
    }),
    Part::either("mounts", |config, place| {
        own_root(config, place, &[]);
        let kind =
            place.dice.pick(&["mqueue", "sysfs", "cgroup", "devpts", "proc", "ramfs", "overlay", "cgroup2"]);
        mount(config, json!({"destination": "/mnt", "type": kind, "source": kind}));
    }),
    // Links in the image.
    Part::bad("links", |config, place| {
        let name = place.dice.pick(&["dev", "proc", "sys"]);
        let target = place.dice.pick(&["/etc", "../../..", "/proc/self/root", "tmp", "/nonexistent"]);
        own_root(config, place, &[(name, target)]);
    }),
    Part::either("links", |config, place| {
        let target = place.dice.pick(&["/etc", "../../../../etc", "/proc/self/cwd", "link", "/dev/shm"]);
        own_root(config, place, &[("link", target)]);
        let (kind, options) = place.dice.pick(&[
            ("tmpfs", json!([])),
            ("bind", json!(["bind"])),
            ("tmpfs", json!(["tmpcopyup"])),
        ]);
        mount(config, json!({"destination": "/link", "type": kind, "source": "/usr", "options": options}));
    }),
    Part::either("links", |config, place| {
        let target = place.dice.pick(&["/", "../..", "/proc/1/root", "tmp"]);
        own_root(config, place, &[("tmp", target)]);
        config["process"]["cwd"] = json!("/tmp/deep/er");
    }),
    Part::bad("links", |config, place| {
        own_root(config, place, &[("secret", "/data/file")]);
        config["linux"]["maskedPaths"] = json!(["/secret"]);
    }),
    Part::good("hidden", |config, _| {
        config["linux"]["maskedPaths"] = json!(["/data/file", "/no/such"]);
        config["linux"]["readonlyPaths"] = json!(["/proc/sys", "/no/such"]);
    }),
    Part::bad("hidden", |config, _| config["linux"]["readonlyPaths"] = json!(["relative"])),
    Part::good("propagation", |config, place| {
        config["linux"]["rootfsPropagation"] =
            json!(place.dice.pick(&["private", "rslave", "shared", "unbindable"]));
    }),
    Part::bad("propagation", |config, _| config["linux"]["rootfsPropagation"] = json!("sideways")),
    // The process.
    Part::bad("args", |config, place| {
        config["process"]["args"] =
            json!([place.dice.pick(&["no-such", "/no/such", "/data/file", "/data", ""])])
    }),
    Part::bad("args", |config, _| config["process"]["args"] = json!(["/bin/echo", "a\0b"])),
    Part::bad("args", |config, _| config["process"]["args"] = json!([])),
    Part::bad("args", |config, _| drop(config.as_object_mut().unwrap().remove("process"))),
    Part::either("env", |config, place| {
        push(config, &["process", "env"], json!(place.dice.pick(&["X", "=", "=x", "A\0B=c", "HOME="])))
    }),
    Part::good("cwd", |config, _| config["process"]["cwd"] = json!("/tmp")),
    Part::bad("cwd", |config, place| {
        config["process"]["cwd"] = json!(place.dice.pick(&["relative", "", "a\nb"]))
    }),
    Part::either("cwd", |config, place| {
        config["process"]["cwd"] =
            json!(place.dice.pick(&["/deep/er", "/data/file", "/a\0b", "/../..", "/proc/self"]))
    }),
    Part::good("user", |config, _| {
        config["process"]["user"] = json!({"uid": 1000, "gid": 1000, "umask": 0o77})
    }),
    Part::either("user", |config, place| {
        let id = place.dice.pick(&[u32::MAX, u32::MAX - 1, 70_000, 0]);
        config["process"]["user"] = json!({"uid": id, "gid": id, "additionalGids": [id, 5]});
    }),
    Part::either("terminal", |config, _| config["process"]["terminal"] = json!(true)),
    Part::good("oom", |config, _| config["process"]["oomScoreAdj"] = json!(500)),
    Part::bad("oom", |config, place| {
        config["process"]["oomScoreAdj"] = json!(place.dice.pick(&[5000, -5000, i32::MAX]))
    }),
    Part::good("rlimits", |config, _| {
        config["process"]["rlimits"] = json!([{"type": "RLIMIT_NOFILE", "soft": 64, "hard": 64}])
    }),
    Part::either("rlimits", |config, place| {
        let kind = place.dice.pick(&[
            "RLIMIT_NOFILE",
            "RLIMIT_AS",
            "RLIMIT_NPROC",
            "RLIMIT_STACK",
            "RLIMIT_FSIZE",
            "RLIMIT_DATA",
            "RLIMIT_CPU",
        ]);
        let value = place.dice.pick(&[0u64, 1, 4, 4096, u64::MAX]);
        config["process"]["rlimits"] = json!([{"type": kind, "soft": value, "hard": value}]);
    }),
    Part::bad("rlimits", |config, place| {
        let one = json!({"type": "RLIMIT_CORE", "soft": 0, "hard": 0});
        let more = json!({"type": "RLIMIT_CORE", "soft": 2, "hard": 1});
        let odd = json!({"type": "RLIMIT_NONE", "soft": 0, "hard": 0});
        config["process"]["rlimits"] = place.dice.pick(&[json!([one, one]), json!([more]), json!([odd])]);
    }),
    Part::good("capabilities", |config, _| {
        let set = json!(["CAP_KILL", "CAP_CHOWN"]);
        config["process"]["capabilities"] = json!({"bounding": set, "effective": set, "permitted": set});
    }),
    Part::either("capabilities", |config, place| {
        let set = place.dice.pick(&["ambient", "effective", "inheritable", "permitted"]);
        config["process"]["capabilities"] = json!({set: ["CAP_KILL"]});
    }),
    Part::bad("capabilities", |config, _| {
        config["process"]["capabilities"] = json!({"bounding": ["CAP_EVERYTHING"]})
    }),
    Part::bad("labels", |config, place| {
        let (section, key) = place.dice.pick(&[("process", "selinuxLabel"), ("linux", "mountLabel")]);
        config[section][key] = json!("a:b:c");
    }),
    Part::either("labels", |config, place| {
        config["process"]["apparmorProfile"] = json!(place.dice.pick(&["unconfined", "no-such-profile", ""]))
    }),
    Part::either("scheduling", |config, place| {
        config["process"]["scheduler"] = json!({"policy": place.dice.pick(&["SCHED_BATCH", "SCHED_FIFO", "SCHED_DEADLINE"]), "priority": 200});
    }),
    Part::either("scheduling", |config, _| {
        config["process"]["ioPriority"] = json!({"class": "IOPRIO_CLASS_RT", "priority": 99})
    }),
    // The filter.
    Part::good("seccomp", |config, _| {
        seccomp(
            config,
            "SCMP_ACT_ALLOW",
            json!([{"names": ["sched_yield", "no_such_call"], "action": "SCMP_ACT_ERRNO", "errnoRet": 95}]),
        );
    }),
    Part::either("seccomp", |config, place| {
        // Everything is refused: at the latest the program's execution.
        let action =
            place.dice.pick(&["SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_TRAP"]);
        seccomp(config, action, json!([{"names": ["execve"], "action": "SCMP_ACT_ALLOW"}]));
    }),
    Part::either("seccomp", |config, place| {
        let rule = place.dice.pick(&[
            json!({"names": ["write"], "action": "SCMP_ACT_NOTIFY"}),
            json!({"names": ["read"], "action": "SCMP_ACT_ERRNO", "errnoRet": 70_000}),
            json!({"names": ["clone"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 9, "value": 1, "op": "SCMP_CMP_EQ"}]}),
            json!({"names": ["exit_group"], "action": "SCMP_ACT_TRACE"}),
            json!({"names": [], "action": "SCMP_ACT_ERRNO"}),
        ]);
        seccomp(config, "SCMP_ACT_ALLOW", json!([rule]));
    }),
    Part::bad("seccomp", |config, _| seccomp(config, "SCMP_ACT_MAYBE", json!([]))),
    // Hooks.
    Part::good("hooks", |config, place| hook(config, place.dice.pick(&KINDS), "exit 0", Some(10))),
    Part::good("hooks", |config, place| {
        hook(config, place.dice.pick(&KINDS[..3]), "cat >/dev/null; sleep 0.1", None)
    }),
    Part::good("hooks", |config, _| hook(config, "poststop", "exit 3", None)),
    Part::bad("hooks", |config, place| hook(config, place.dice.pick(&DECIDING), "kill -9 $$", None)),
    Part::bad("hooks", |config, place| hook(config, place.dice.pick(&DECIDING), "exit 3", None)),
    Part::bad("hooks", |config, place| hook(config, place.dice.pick(&DECIDING), "exec sleep 3", Some(1))),
    Part::either("hooks", |config, _| hook(config, "startContainer", "exit 3", None)),
    Part::bad("hooks", |config, place| hook(config, place.dice.pick(&KINDS), "exit 0", Some(0))),
    Part::bad("hooks", |config, place| {
        push(
            config,
            &["hooks", place.dice.pick(&DECIDING)],
            json!({"path": place.dice.pick(&["/no/such", "sh", "/data", ""])}),
        );
    }),
    Part::either("hooks", |config, place| {
        push(
            config,
            &["hooks", place.dice.pick(&KINDS)],
            json!({"path": "/bin/true", "args": ["a\0b"], "env": ["X", "=y", "A=\0"]}),
        );
    }),
    // Limits.
    Part::good("limits", |config, _| config["linux"]["resources"]["pids"] = json!({"limit": 32})),
    Part::good("limits", |config, _| {
        config["linux"]["resources"]["memory"] = json!({"limit": 64 << 20});
        config["linux"]["resources"]["cpu"] = json!({"quota": 50_000, "period": 100_000, "shares": 512});
    }),
    Part::either("limits", |config, place| {
        config["linux"]["resources"]["memory"] =
            json!({"limit": place.dice.pick(&[1, 4096, 65_536, 400_000, -1, i64::MAX])})
    }),
    Part::either("limits", |config, place| {
        config["linux"]["resources"]["pids"] = json!({"limit": place.dice.pick(&[1, 2, i64::MAX, i64::MIN])})
    }),
    Part::bad("limits", |config, place| {
        config["linux"]["resources"]["cpu"] =
            json!({"cpus": place.dice.pick(&["99", "x", "0-4294967295", "1-0"])})
    }),
    Part::bad("limits", |config, _| config["linux"]["resources"]["cpu"] = json!({"quota": 1, "period": 1})),
    Part::bad("limits", |config, place| {
        config["linux"]["resources"]["unified"] =
            json!({place.dice.pick(&["../x", "cgroup.freeze", "no.such", ".."]): "1"})
    }),
    Part::bad("limits", |config, place| {
        config["linux"]["resources"]["hugepageLimits"] =
            json!([{"pageSize": place.dice.pick(&["3MB", "../x", ""]), "limit": 1}])
    }),
    Part::either("limits", |config, _| config["linux"]["resources"]["blockIO"] = json!({"weight": 5})),
    Part::good("cgroup", |config, place| {
        // An ordinary user's is below their own.
        let path = if crate::support::rootless() {
            format!("rlox-{}", place.token)
        } else {
            format!("/rlox-{}", place.token)
        };
        config["linux"]["cgroupsPath"] = json!(path);
    }),
    Part::bad("cgroup", |config, place| {
        config["linux"]["cgroupsPath"] = json!(place.dice.pick(&["/", ".", "./", "/a/../b", "..", "//"]))
    }),
    Part::either("cgroup", |config, place| {
        let tail = place.dice.pick(&["x".repeat(300), "a\nb".into(), "a\0b".into(), " ".into()]);
        config["linux"]["cgroupsPath"] = json!(format!("/rlox-{}{tail}", place.token));
    }),
    // The rest of the linux section.
    Part::either("sysctl", |config, _| config["linux"]["sysctl"] = json!({"kernel.shmmni": "4096"})),
    Part::bad("sysctl", |config, place| {
        config["linux"]["sysctl"] =
            json!({place.dice.pick(&["kernel.panic", "vm.swappiness", "net..", "../x"]): "1"})
    }),
    Part::either("devices", |config, place| {
        let (path, kind) = place.dice.pick(&[
            ("/dev/ours", "c"),
            ("/etc/ours", "c"),
            ("/dev/null", "b"),
            ("relative", "p"),
            ("/dev/../x", "c"),
            ("/dev/x", "u"),
        ]);
        config["linux"]["devices"] =
            json!([{"path": path, "type": kind, "major": 1, "minor": 3, "fileMode": 0o666}]);
    }),
    Part::bad("devices", |config, _| config["linux"]["devices"] = json!([{"path": "/dev/x", "type": "z"}])),
    Part::either("rest", |config, place| {
        let (key, value) = place.dice.pick(&[
            ("intelRdt", json!({"closID": "rlox"})),
            ("personality", json!({"domain": "LINUX32"})),
            ("timeOffsets", json!({"boottime": {"secs": 5, "nanosecs": 0}})),
            ("netDevices", json!({"no-such-device": {"name": "eth0"}})),
        ]);
        config["linux"][key] = value;
    }),
];
