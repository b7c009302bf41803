//! Terminals: the master side over the console socket, and carried by a foreground command.

use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixAddr, recvmsg};
use serde_json::json;

use super::support::{World, world};

fn listen(world: &World) -> (UnixListener, PathBuf) {
    let path = world.path("console.sock");
    (UnixListener::bind(&path).unwrap(), path)
}

fn accept(listener: &UnixListener) -> File {
    let (stream, _) = listener.accept().unwrap();
    let mut name = [0u8; 64];
    let mut space = nix::cmsg_space!([RawFd; 1]);
    let mut parts = [IoSliceMut::new(&mut name)];
    let message =
        recvmsg::<UnixAddr>(stream.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)
            .unwrap();
    let raw = message.cmsgs().unwrap().find_map(|each| {
        let ControlMessageOwned::ScmRights(descriptors) = each else { return None };
        descriptors.first().copied()
    });
    #[expect(unsafe_code, reason = "the descriptor came with the message and is nobody else's")]
    // SAFETY: the kernel has just put it into this process.
    let master = unsafe { OwnedFd::from_raw_fd(raw.unwrap()) };
    master.into()
}

/// Reads until the text has come.
fn expect(master: &mut File, wanted: &str) -> String {
    let mut seen = String::new();
    let mut buffer = [0u8; 1024];
    while !seen.contains(wanted) {
        match master.read(&mut buffer) {
            Ok(0) | Err(_) => panic!("the terminal closed after {seen:?}"),
            Ok(count) => seen.push_str(&String::from_utf8_lossy(&buffer[..count])),
        }
    }
    seen
}

const TALK: &str = "import os, sys\n\
    print([os.isatty(n) for n in (0, 1, 2)], os.ttyname(0), os.path.exists('/dev/console'), flush=True)\n\
    print('got ' + sys.stdin.readline(), flush=True)";

#[test]
fn create_hands_over_the_terminal() {
    let Some(world) = world() else { return };
    world.python(TALK, |config| config["process"]["terminal"] = json!(true));
    let (listener, path) = listen(&world);
    let container = world.id();
    let bundle = world.bundle();
    world.ok(&[
        "create",
        "--console-socket",
        path.to_str().unwrap(),
        "--bundle",
        bundle.to_str().unwrap(),
        &container.id,
    ]);
    let mut master = accept(&listener);
    world.ok(&["start", &container.id]);
    let seen = expect(&mut master, "True\r\n");
    assert!(seen.contains("[True, True, True] /dev/pts/0 True"), "{seen}");
    master.write_all(b"hello\n").unwrap();
    expect(&mut master, "got hello");
}

#[test]
fn exec_hands_over_a_terminal_of_its_own() {
    let Some(world) = world() else { return };
    let container = world.running();
    let (listener, path) = listen(&world);
    world.ok(&[
        "exec",
        "--tty",
        "--detach",
        "--console-socket",
        path.to_str().unwrap(),
        &container.id,
        "/usr/bin/python3",
        "-I",
        "-S",
        "-c",
        TALK,
    ]);
    let mut master = accept(&listener);
    expect(&mut master, "[True, True, True] /dev/pts/0");
    master.write_all(b"again\n").unwrap();
    expect(&mut master, "got again");
}

#[test]
fn foreground_commands_carry_the_terminal_themselves() {
    let Some(world) = world() else { return };
    world.python("import os; print([os.isatty(n) for n in (0, 1, 2)]); raise SystemExit(3)", |config| {
        config["process"]["terminal"] = json!(true);
    });
    let (code, out, err) = world.run();
    assert_eq!((code, out.as_str()), (3, "[True, True, True]"), "{err}");
    world.configure(|_| {});
    let container = world.running();
    let output = world.output(&[
        "exec",
        "--tty",
        &container.id,
        "/usr/bin/python3",
        "-I",
        "-S",
        "-c",
        "import os; print(os.isatty(1)); raise SystemExit(6)",
    ]);
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "True");
}

#[test]
fn a_socket_without_a_terminal_is_refused() {
    let Some(world) = world() else { return };
    let (_listener, path) = listen(&world);
    let bundle = world.bundle();
    let message = world.refused(&[
        "create",
        "--console-socket",
        path.to_str().unwrap(),
        "--bundle",
        bundle.to_str().unwrap(),
        "refused",
    ]);
    assert!(message.contains("terminal"), "{message}");
}
