//! The death of any command at any point leaves something that the next command shows, and removes.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::support::{SOON, cgroups, world};
use crate::support::host::{processes, wait_until};

fn murder(child: &mut std::process::Child) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
}

#[test]
fn a_create_that_is_killed_while_a_hook_runs() {
    let Some(world) = world() else { return };
    let marker = world.path("marker");
    for kind in ["createRuntime", "createContainer"] {
        let line = format!("touch {}; exec sleep 30", marker.display());
        world.configure(|config| {
            config["hooks"][kind] =
                json!([{"path": "/bin/sh", "args": ["sh", "-c", line], "env": ["PATH=/usr/bin:/bin"], "timeout": 40}]);
        });
        let container = world.id();
        let bundle = world.bundle();
        let mut child =
            world.command(&["create", "--bundle", bundle.to_str().unwrap(), &container.id]).spawn().unwrap();
        wait_until("the hook", SOON, || marker.exists());
        assert_eq!(container.status(), "creating");
        murder(&mut child);
        fs::remove_file(&marker).unwrap();
        assert_eq!(container.status(), "stopped", "{kind}");
        assert!(world.ok(&["list"]).contains("stopped"));
        assert!(world.refused(&["start", &container.id]).contains("stopped"));
        world.ok(&["delete", "--force", &container.id]);
        assert_eq!(world.ok(&["list", "-q"]), "");
        assert!(cgroups(&container.id).is_empty(), "{:?}", cgroups(&container.id));
        // The hook itself runs in the runtime's namespaces; it is the operator's own program.
        for pid in processes(&format!("touch {}", marker.display())) {
            kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        }
    }
}

#[test]
fn creates_killed_at_any_moment_can_be_deleted() {
    let Some(world) = world() else { return };
    world.configure(|_| {});
    let bundle = world.bundle();
    for step in 0..12u64 {
        let container = world.id();
        let mut child =
            world.command(&["create", "--bundle", bundle.to_str().unwrap(), &container.id]).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(step * 7));
        murder(&mut child);
        world.ok(&["delete", "--force", &container.id]);
        assert_eq!(world.ok(&["list", "-q"]), "", "killed after {} ms", step * 7);
        assert!(cgroups(&container.id).is_empty(), "killed after {} ms", step * 7);
        let left = processes(&format!("rlox-{}", container.id));
        assert!(left.is_empty(), "killed after {} ms: {left:?}", step * 7);
    }
}

#[test]
fn a_run_that_is_killed_leaves_a_container_that_can_be_deleted() {
    let Some(world) = world() else { return };
    let container = world.id();
    let bundle = world.bundle();
    let mut child =
        world.command(&["run", "--bundle", bundle.to_str().unwrap(), &container.id]).spawn().unwrap();
    wait_until("the container", SOON, || {
        let output = world.output(&["state", &container.id]);
        String::from_utf8_lossy(&output.stdout).contains("running")
    });
    murder(&mut child);
    assert_eq!(container.status(), "running");
    world.ok(&["delete", "--force", &container.id]);
    assert!(cgroups(&container.id).is_empty());
}

#[test]
fn what_a_killed_delete_left_is_swept_by_the_next_create() {
    let Some(world) = world() else { return };
    let left = world.path("state").join(".gone-x-4000000");
    fs::create_dir_all(left.join("init")).unwrap();
    let _container = world.created();
    assert!(!left.exists());
    assert_eq!(world.ok(&["list", "-q"]).lines().count(), 1);
}

#[test]
fn an_id_that_was_claimed_and_never_recorded_is_stopped_and_free() {
    let Some(world) = world() else { return };
    fs::create_dir_all(world.path("state").join("claimed")).unwrap();
    assert!(world.ok(&["list"]).contains("claimed"));
    assert!(world.refused(&["start", "claimed"]).contains("killed command"));
    let bundle = world.bundle();
    world.ok(&["create", "--bundle", bundle.to_str().unwrap(), "claimed"]);
    world.ok(&["delete", "--force", "claimed"]);
    fs::create_dir_all(world.path("state").join("claimed")).unwrap();
    world.ok(&["delete", "claimed"]);
    assert_eq!(world.ok(&["list", "-q"]), "");
}

#[test]
fn two_creates_of_one_id_make_one_container() {
    let Some(world) = world() else { return };
    let container = world.id();
    let bundle = world.bundle();
    let mut children: Vec<_> = (0..4)
        .map(|_| {
            let mut command = world.command(&["create", "--bundle", bundle.to_str().unwrap(), &container.id]);
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    let codes: Vec<_> = children.iter_mut().map(|child| child.wait().unwrap().code()).collect();
    assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 1, "{codes:?}");
    assert_eq!(container.status(), "created");
}
