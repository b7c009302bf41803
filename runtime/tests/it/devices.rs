//! Devices by CDI through a real container: nodes, mounts, variables and hooks of a made-up vendor, whose device
//! is the host's `/dev/null`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{RUNTIME, bundle, ready, run, stderr};

/// What a vendor leaves on a host: its file, a library, and a hook that writes down how it was called.
struct Vendor {
    directory: tempfile::TempDir,
}

const HOOKS: [&str; 5] = ["prestart", "createRuntime", "createContainer", "startContainer", "poststart"];

impl Vendor {
    /// The library appears in the container at `library`.
    fn install(library: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        // Hooks of the container's namespace run as a user who may only search and read here.
        let open =
            |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        open(path, 0o755);
        fs::create_dir(path.join("records")).unwrap();
        open(&path.join("records"), 0o777);
        fs::write(path.join("libfake.so.1"), "the driver").unwrap();
        let script = "#!/bin/sh\n\
            { printf '%s|%s|' \"$*\" \"$FAKE\"; tr -d '\\n' | head -c 4096; } >\"${0%/*}/records/$1\"\n\
            [ \"$1\" != link ] || ln -s libfake.so.1 \"$2\"\n";
        fs::write(path.join("hook"), script).unwrap();
        open(&path.join("hook"), 0o755);
        let hook = |name: &str| {
            json!({"hookName": name, "path": path.join("hook"), "args": ["hook", name, "argument"],
                "env": [format!("FAKE={name}"), "PATH=/usr/bin:/bin"], "timeout": 30})
        };
        let hooks: Vec<Value> =
            HOOKS.iter().filter(|name| **name != "startContainer").map(|name| hook(name)).collect();
        let document = json!({
            "cdiVersion": "0.5.0", "kind": "vendor.example/gpu",
            "containerEdits": {
                "env": ["VENDOR_VISIBLE_DEVICES=void", "LANG=vendor"],
                "mounts": [{"hostPath": path.join("libfake.so.1"), "containerPath": library,
                    "options": ["ro", "nosuid", "nodev", "bind"]}],
                "hooks": hooks,
            },
            "devices": [
                {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/vendor0", "hostPath": "/dev/null", "permissions": "rw"}]}},
                {"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/vendor-all", "hostPath": "/dev/zero"}]}},
            ],
        });
        fs::write(path.join("vendor.json"), document.to_string()).unwrap();
        Self { directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn options(&self) -> [&str; 4] {
        ["--cdi-spec-dir", self.path().to_str().unwrap(), "--device", "vendor.example/gpu=0"]
    }

    fn record(&self, hook: &str) -> Option<String> {
        fs::read_to_string(self.path().join("records").join(hook)).ok()
    }
}

const LOOK: &str = "import json, os, stat\n\
    node = os.stat('/dev/vendor0')\n\
    written = os.write(os.open('/dev/vendor0', os.O_RDWR), b'to the device')\n\
    print(json.dumps([stat.S_ISCHR(node.st_mode), os.major(node.st_rdev), os.minor(node.st_rdev), written,\n\
        os.environ['VENDOR_VISIBLE_DEVICES'], os.environ['LANG'], open(LIBRARY).read(), os.path.exists('/dev/vendor-all')]))";

fn look(library: &str) -> String {
    LOOK.replace("LIBRARY", &format!("{library:?}"))
}

#[test]
fn a_device_arrives_with_its_node_its_library_its_variables_and_its_hooks() {
    if !ready() {
        return;
    }
    // As root the bundle's files belong to nobody that the container knows, so this needs the layer over them.
    let library = match nix::unistd::geteuid().is_root() {
        true => "/usr/lib/vendor/libfake.so.1",
        false => "/tmp/libfake.so.1",
    };
    let vendor = Vendor::install(library);
    let output =
        run(&vendor.options(), &["/usr/bin/python3", "-I", "-S", "-c", &look(library)]).output().unwrap();
    let seen: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    assert_eq!(seen, json!([true, 1, 3, 13, "void", "vendor", "the driver", false]));
    for hook in HOOKS.into_iter().filter(|name| *name != "startContainer") {
        let record = vendor.record(hook).unwrap_or_else(|| panic!("no record of {hook}"));
        let (arguments, rest) = record.split_once('|').unwrap();
        let (variable, state) = rest.split_once('|').unwrap();
        assert_eq!((arguments, variable), (format!("{hook} argument").as_str(), hook));
        let state: Value =
            serde_json::from_str(state).unwrap_or_else(|error| panic!("{hook}: {error}: {state}"));
        assert!(state["id"].as_str().is_some_and(|id| !id.is_empty()), "{hook}: {state}");
    }
    assert!(!bundle().join("rootfs/usr/lib/vendor").exists(), "the bundle itself was changed");
}

#[test]
fn without_a_device_nothing_of_it_is_there() {
    if !ready() {
        return;
    }
    let code = "import os; print([n for n in os.listdir('/dev') if n.startswith('vendor')], 'VENDOR_VISIBLE_DEVICES' in os.environ)";
    let vendor = Vendor::install("/tmp/libfake.so.1");
    let output = run(&vendor.options()[..2], &["/usr/bin/python3", "-I", "-S", "-c", code]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "[] False", "{}", stderr(&output));
    assert_eq!(vendor.record("createContainer"), None);
}

/// Without ids of its own the container gets a node of its own, with the described mode and the program's ids.
#[test]
fn real_root_without_a_user_namespace_makes_the_node() {
    // An ordinary user's node is bound, as the first test has it.
    if !ready() || !nix::unistd::geteuid().is_root() {
        return;
    }
    let text = fs::read_to_string(bundle().join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["linux"]["namespaces"].as_array_mut().unwrap().retain(|namespace| namespace["type"] != "user");
    // libcontainer makes read-only paths nodev too, which bound nodes do not notice and made ones do.
    for section in ["uidMappings", "gidMappings", "readonlyPaths"] {
        config["linux"].as_object_mut().unwrap().remove(section);
    }
    config["root"]["path"] = json!(bundle().join("rootfs"));
    let own = tempfile::tempdir().unwrap();
    fs::write(own.path().join("config.json"), config.to_string()).unwrap();
    let vendor = Vendor::install("/tmp/libfake.so.1");
    let code = "import json, os, stat\n\
        node = os.stat('/dev/vendor0')\n\
        print(json.dumps([os.major(node.st_rdev), os.minor(node.st_rdev), node.st_uid, node.st_gid,\n\
            os.write(os.open('/dev/vendor0', os.O_WRONLY), b'x'), os.path.ismount('/dev/vendor0')]))";
    let mut command = Command::new(RUNTIME);
    command.args(["run", "--timeout-secs", "60"]).args(vendor.options()).arg(own.path());
    let output = command.args(["--", "/usr/bin/python3", "-I", "-S", "-c", code]).output().unwrap();
    let seen: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    assert_eq!(seen, json!([1, 3, 1000, 1000, 1, false]));
}

#[test]
fn a_missing_device_is_69_and_lists_what_there_is() {
    let vendor = Vendor::install("/tmp/libfake.so.1");
    let directory = vendor.path().to_str().unwrap();
    let output = run(&["--cdi-spec-dir", directory, "--device", "vendor.example/gpu=9"], &["/bin/true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(69), "{}", stderr(&output));
    for part in ["vendor.example/gpu=9", "vendor.example/gpu=0, vendor.example/gpu=all", directory] {
        assert!(stderr(&output).contains(part), "{part}: {}", stderr(&output));
    }
    let output = run(&["--device", "/dev/null"], &["/bin/true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(64), "{}", stderr(&output));
}

#[test]
fn spec_prints_a_config_with_the_edits() {
    let vendor = Vendor::install("/tmp/libfake.so.1");
    let print = |arguments: &[&str]| {
        let output = Command::new(RUNTIME).arg("spec").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let written = tempfile::tempdir().unwrap();
    let output = Command::new(RUNTIME).arg("spec").current_dir(written.path()).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{}", stderr(&output));
    let plain = std::fs::read(written.path().join("config.json")).unwrap();
    let plain: Value = serde_json::from_slice(&plain).unwrap();
    let with = print(&vendor.options());
    assert!(!plain.to_string().contains("vendor") && plain["ociVersion"] == with["ociVersion"]);
    assert!(with.to_string().contains("/dev/vendor0") && with["hooks"]["createContainer"].is_array());
    let path = bundle();
    let snippet = print(&[&["--bundle", path.to_str().unwrap()], &vendor.options()[..]].concat());
    assert_eq!(snippet["process"]["args"][5], "/opt/rlox/driver.pyc");
    // The snippet has ids of its own, so its node is bound.
    assert!(snippet["mounts"].as_array().unwrap().iter().any(|mount| mount["destination"] == "/dev/vendor0"));
}
