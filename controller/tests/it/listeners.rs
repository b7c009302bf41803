//! Where the service listens, who may talk to it, and what it refuses to do.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;

use crate::support::http::Address;
use crate::support::service::{honest, post};
use crate::support::{SOON, Service, VERIFY_SERVER, controller, nothing_left, output_within, ready, stderr};

const TOKEN: &str = "a-token-of-some-length";

/// Runs a service that has to refuse to start; returns what it said.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let scratch = tempfile::tempdir().unwrap();
    let mut command = controller(scratch.path(), &["serve", "--workers", "1"]);
    let (pid, output) = output_within(command.args(arguments), SOON);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", stderr(&output));
    nothing_left(pid, scratch.path());
    stderr(&output)
}

#[test]
fn the_tutorials_command_serves() {
    if !ready() {
        return;
    }
    let service = Service::of(VERIFY_SERVER, &["--port", "0", "--timeout-secs", "5"]);
    service.is_well();
    service.stop();
}

#[test]
fn a_unix_socket_serves_the_same_and_goes_with_the_service() {
    if !ready() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("verify.sock");
    // A killed service left its socket: it is replaced.
    drop(UnixListener::bind(&path).unwrap());
    let service = Service::with(&["--workers", "1", "--unix", path.to_str().unwrap()]);
    let metadata = std::fs::metadata(&path).unwrap();
    assert!(metadata.file_type().is_socket() && metadata.permissions().mode() & 0o777 == 0o666);
    let address = Address::Unix(path.clone());
    assert_eq!(address.request("GET", "/health", &[], b"").unwrap().status, 200);
    assert_eq!(post(&address, "/verify", &honest()).json()["verdict"], "passed");
    service.is_well();
    service.stop();
    assert!(!path.exists());
}

#[test]
fn a_unix_socket_in_use_is_not_taken() {
    if !ready() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("verify.sock");
    let _others = UnixListener::bind(&path).unwrap();
    let text = refused(&["--port", "0", "--unix", path.to_str().unwrap()]);
    assert!(text.contains("verify.sock"), "{text}");
    assert!(path.exists());
}

/// A mistyped path must not cost a file.
#[test]
fn a_file_in_the_place_of_the_unix_socket_is_not_removed() {
    if !ready() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("precious.txt");
    std::fs::write(&path, "precious").unwrap();
    let service = std::panic::catch_unwind(|| refused(&["--port", "0", "--unix", path.to_str().unwrap()]));
    assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), Some("precious"), "the file is gone");
    assert!(service.unwrap().contains("precious.txt"));
}

#[test]
fn a_token_is_asked_for_everywhere_but_at_health() {
    if !ready() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let socket = directory.path().join("verify.sock");
    let (file, socket) = (file.to_str().unwrap(), socket.to_str().unwrap());
    let service = Service::with(&["--workers", "1", "--token-file", file, "--unix", socket]);
    let body = honest().to_string();
    for address in [service.address.clone(), Address::Unix(socket.into())] {
        let call = |method: &str, path: &str, token: Option<&str>| {
            let mut headers = vec![("Content-Type", "application/json")];
            headers.extend(token.map(|token| ("Authorization", token)));
            address
                .request(method, path, &headers, if method == "POST" { body.as_bytes() } else { b"" })
                .unwrap()
        };
        assert_eq!(call("GET", "/health", None).status, 200);
        let right = format!("Bearer {TOKEN}");
        for wrong in [
            None,
            Some("Bearer "),
            Some("Bearer a-token-of-some-lengt"),
            Some("Bearer a-token-of-some-length2"),
            Some(TOKEN),
            Some("Basic YTpi"),
        ] {
            for (method, path) in [("POST", "/verify"), ("POST", "/verify/batch"), ("GET", "/metrics")] {
                call(method, path, wrong).is_problem(401);
            }
        }
        let answer = call("POST", "/verify", Some(&right));
        assert_eq!((answer.status, answer.json()["verdict"].as_str()), (200, Some("passed")));
        assert_eq!(call("GET", "/metrics", Some(&right)).status, 200);
    }
    assert!(!service.log().contains(TOKEN), "the token is in the log");
    service.stop();
}

/// RFC 9110: a 401 has to say how to authenticate.
#[test]
fn a_refusal_names_its_authentication_scheme() {
    if !ready() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    let service = Service::with(&["--workers", "1", "--token-file", file.to_str().unwrap()]);
    let answer = service.get("/metrics");
    answer.is_problem(401);
    assert!(
        answer.header("www-authenticate").is_some_and(|scheme| scheme.starts_with("Bearer")),
        "{answer:?}"
    );
    service.stop();
}

#[test]
fn other_machines_are_served_only_with_a_token() {
    if !ready() {
        return;
    }
    for host in ["0.0.0.0", "::"] {
        let text = refused(&["--port", "0", "--host", host]);
        assert!(text.contains("--token-file"), "{text}");
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "short").unwrap();
    let text = refused(&["--port", "0", "--token-file", file.to_str().unwrap()]);
    assert!(text.contains("at least 16"), "{text}");
    let text = refused(&["--port", "0", "--token-file", "/nonexistent/token"]);
    assert!(text.contains("/nonexistent/token"), "{text}");
}

#[test]
fn a_port_in_use_is_named_and_its_owner_is_left_alone() {
    if !ready() {
        return;
    }
    let first = Service::start();
    let text = refused(&["--port", &first.port.to_string()]);
    assert!(text.contains(&format!("127.0.0.1:{}", first.port)) && text.contains("another --port"), "{text}");
    first.is_well();
    // Two services at once share nothing.
    let second = Service::start();
    second.is_well();
    first.is_well();
    second.stop();
    first.is_well();
    first.stop();
}

#[test]
fn nonsense_on_the_command_line_is_usage() {
    for arguments in [
        &["--port", "70000"][..],
        &["--timeout-secs", "0"],
        &["--timeout-secs", "soon"],
        &["--workers", "0"],
        &["--queue", "0"],
        &["--host", "nowhere"],
    ] {
        let scratch = tempfile::tempdir().unwrap();
        let output = controller(scratch.path(), &["serve"]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
    }
}
