//! What a program in a container can see, read from inside and compared with the host.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use serde_json::{Value, json as value};

use crate::support::{RUNTIME, bundle, json, printed, python, ready, stderr};

const STATUS: &str = "import json\n\
    status = dict(line.rstrip('\\n').split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)\n";

#[test]
fn it_is_an_ordinary_user_without_any_capability() {
    if !ready() {
        return;
    }
    let seen = json(&format!(
        "{STATUS}import os\nprint(json.dumps([os.getresuid(), os.getresgid(), os.getgroups(), status]))"
    ));
    // Root maps a range and runs as 1000; an ordinary caller maps itself alone, to 0.
    let id = if nix::unistd::geteuid().is_root() { 1000 } else { 0 };
    assert_eq!(seen[0], value!([id, id, id]));
    assert_eq!(seen[1], value!([id, id, id]));
    for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(seen[3][name], "0000000000000000", "{name}");
    }
    assert_eq!(seen[3]["NoNewPrivs"], "1");
    assert_eq!(seen[3]["Seccomp"], "2");
}

#[test]
fn root_leaves_none_of_its_groups() {
    if !ready()
        || !crate::support::host::need(nix::unistd::geteuid().is_root(), "real root, which may drop groups")
    {
        return;
    }
    assert_eq!(
        json("import json, os; print(json.dumps([g for g in os.getgroups() if g != 1000]))"),
        value!([])
    );
}

#[test]
fn it_is_alone_in_its_pid_namespace() {
    if !ready() {
        return;
    }
    let code = "import json, os\nprint(json.dumps([os.getpid(), os.getppid(), [n for n in os.listdir('/proc') if n.isdigit()]]))";
    assert_eq!(json(code), value!([1, 0, ["1"]]));
}

#[test]
fn every_namespace_is_its_own() {
    if !ready() {
        return;
    }
    let names = ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"];
    let inside = json(&format!(
        "import json, os\nprint(json.dumps({{n: os.readlink('/proc/self/ns/' + n) for n in {names:?}}}))"
    ));
    for name in names {
        let host = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        assert_ne!(inside[name].as_str().unwrap(), host.to_str().unwrap(), "{name}");
    }
    assert_eq!(printed("import socket; print(socket.gethostname())"), "sandbox");
}

#[test]
fn its_own_cgroup_is_the_root_that_it_sees() {
    if !ready() {
        return;
    }
    let text = printed("print(open('/proc/self/cgroup').read())");
    assert!(!text.contains("rlox"), "{text}");
    for line in text.lines() {
        let (controllers, path) = line.split_once(':').and_then(|(_, rest)| rest.split_once(':')).unwrap();
        let limited = controllers.is_empty()
            || controllers.split(',').any(|name| ["memory", "pids", "cpu"].contains(&name));
        // A hybrid host's v2 hierarchy carries no limits and is not joined.
        if limited && !(controllers.is_empty() && text.lines().count() > 1) {
            assert_eq!(path, "/", "{line}");
        }
    }
}

#[test]
fn there_is_no_network_but_a_loopback_that_is_down() {
    if !ready() {
        return;
    }
    let seen = json(
        "import errno, fcntl, json, socket, struct\n\
         names = [line.split(':')[0].strip() for line in open('/proc/net/dev').readlines()[2:]]\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         flags = struct.unpack('16xH', fcntl.ioctl(s, 0x8913, struct.pack('16sH', b'lo', 0))[:18])[0]\n\
         def connect(family, address):\n\
         \x20   try:\n\
         \x20       socket.socket(family).connect(address)\n\
         \x20       return 'connected'\n\
         \x20   except OSError as error:\n\
         \x20       return errno.errorcode[error.errno]\n\
         print(json.dumps([names, flags & 1, connect(2, ('127.0.0.1', 22)), connect(2, ('169.254.169.254', 80)),\n\
         \x20   connect(2, ('1.1.1.1', 53)), connect(10, ('::1', 22)), len(open('/proc/net/route').readlines())]))",
    );
    assert_eq!(seen[0], value!(["lo"]), "interfaces: {seen}");
    assert_eq!(seen[1], 0, "lo is up: {seen}");
    for refused in seen.as_array().unwrap()[2..6].iter().filter_map(Value::as_str) {
        assert!(["ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"].contains(&refused), "{seen}");
    }
    // At most the table's heading.
    assert!(seen[6].as_u64().unwrap() <= 1, "routes: {seen}");
}

#[test]
fn the_root_is_read_only_and_tmp_is_not() {
    if !ready() {
        return;
    }
    let seen = json(
        "import errno, json, os\n\
         def write(path):\n\
         \x20   try:\n\
         \x20       with open(path, 'w') as file: file.write('x')\n\
         \x20       return open(path).read()\n\
         \x20   except OSError as error:\n\
         \x20       return errno.errorcode[error.errno]\n\
         paths = ['/x', '/usr/x', '/usr/lib/x', '/etc/x', '/etc/passwd', '/opt/x', '/opt/rlox/driver.pyc', '/run/x', '/usr/bin/python3.11', '/dev/x']\n\
         print(json.dumps([{p: write(p) for p in paths}, write('/tmp/x'), write('/dev/shm/x')]))",
    );
    for (path, got) in seen[0].as_object().unwrap() {
        assert!(["EROFS", "EACCES", "ETXTBSY"].contains(&got.as_str().unwrap()), "{path}: {got}");
    }
    assert_eq!((seen[1].as_str(), seen[2].as_str()), (Some("x"), Some("x")));
    let mounts = printed("print(open('/proc/self/mountinfo').read())");
    let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/")).unwrap();
    assert!(root.split(' ').nth(5).unwrap().split(',').any(|option| option == "ro"), "{root}");
}

#[test]
fn mounts_are_the_bundles_alone_and_hardened() {
    if !ready() {
        return;
    }
    let mounts = printed("print(open('/proc/self/mountinfo').read())");
    for line in mounts.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        let (point, options) = (fields[4], fields[5]);
        let known = ["/", "/proc", "/dev", "/dev/shm", "/tmp"].contains(&point)
            || point.starts_with("/dev/")
            || point.starts_with("/proc/")
            || point.starts_with("/sys/");
        assert!(known, "unexpected mount {line}");
        if ["/proc", "/dev/shm", "/tmp"].contains(&point) {
            assert!(options.contains("nosuid") && options.contains("nodev"), "{line}");
        }
        assert!(
            !fields.iter().any(|field| field.starts_with("shared:") || field.starts_with("master:")),
            "propagation: {line}"
        );
    }
}

#[test]
fn no_file_of_the_host_is_visible() {
    if !ready() {
        return;
    }
    let marker = tempfile::NamedTempFile::new().unwrap();
    let candidates = [
        "/etc/shadow".to_owned(),
        "/root".into(),
        "/home".into(),
        "/var".into(),
        "/boot".into(),
        "/sys/fs".into(),
        "/opt/rlox/grader.pyc".into(),
        "/proc/1/root/etc/shadow".into(),
        marker.path().display().to_string(),
        crate::support::host::checkout().display().to_string(),
        bundle().display().to_string(),
        RUNTIME.to_owned(),
    ];
    let seen = json(&format!(
        "import json, os\nprint(json.dumps([p for p in {candidates:?} if os.path.lexists(p)]))"
    ));
    assert_eq!(seen, value!([]));
    let top: BTreeSet<String> =
        serde_json::from_value(json("import json, os; print(json.dumps(os.listdir('/')))")).unwrap();
    let allowed = ["bin", "dev", "etc", "lib", "lib64", "opt", "proc", "run", "sbin", "sys", "tmp", "usr"];
    assert!(top.iter().all(|name| allowed.contains(&name.as_str())), "{top:?}");
}

#[test]
fn the_callers_environment_and_descriptors_stay_outside() {
    if !ready() {
        return;
    }
    let environment = python("import json, os; print(json.dumps(dict(os.environ)))")
        .env("RLOX_SECRET", "hunter2")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&environment.stdout).into_owned();
    assert!(text.contains("PATH") && !text.contains("hunter2") && !text.contains("CARGO"), "{text}");
    // A shell that holds host files open on inheritable descriptors starts the runtime.
    let code = "import json, os; print(json.dumps(sorted((int(n), os.readlink('/proc/self/fd/' + n)) for n in os.listdir('/proc/self/fd') if os.path.lexists('/proc/self/fd/' + n))))";
    let output = Command::new("/bin/sh")
        .args(["-c", "exec 3</etc/passwd 7</etc/passwd 9</; exec \"$@\"", "sh", RUNTIME, "run"])
        .arg(bundle())
        .args(["--", "/usr/bin/python3", "-I", "-S", "-c", code])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let seen: Vec<(u32, String)> =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    let beyond: Vec<_> = seen.iter().filter(|(number, _)| *number > 2).collect();
    assert!(beyond.is_empty(), "inherited: {beyond:?}");
}
