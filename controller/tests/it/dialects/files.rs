//! Files beside a program, and files that are read at its end.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::{execute, piston_succeeds, run_code};
use crate::support::{Service, ready};

#[test]
fn files_are_beside_the_program_and_come_back() {
    if !ready() {
        return;
    }
    let service = Service::start();
    // helper.py: VALUE = 41; data/in.bin: 00 FF.
    let files = json!({ "helper.py": "VkFMVUUgPSA0MQ==", "data/in.bin": "AP8=", "ignored": null });
    let code = "import helper, os\nassert open('data/in.bin', 'rb').read() == b'\\x00\\xff'\nassert not os.path.exists('ignored')\nos.mkdir('out')\nopen('out/a.bin', 'wb').write(bytes([helper.VALUE + 1, 255]))\nopen('empty', 'w').close()\n";
    let more = json!({ "files": files, "fetch_files": ["out/a.bin", "./empty", "helper.py"] });
    for arguments in [&["--workers", "1"][..], &["--workers", "1", "--interpreter", "exec"]] {
        let service = Service::with(arguments);
        let body = run_code(&service, code, &more);
        assert_eq!(body["status"], "Success", "{body}");
        assert_eq!(
            body["files"],
            json!({ "out/a.bin": "Kv8=", "./empty": "", "helper.py": "VkFMVUUgPSA0MQ==" })
        );
        service.stop();
    }
    // Of a program that failed by itself there are files as well.
    let failed = run_code(
        &service,
        "open('a', 'w').write('hi')\nraise ValueError\n",
        &json!({ "fetch_files": ["a"] }),
    );
    assert_eq!((&failed["status"], &failed["files"]), (&json!("Failed"), &json!({ "a": "aGk=" })));
    let piston = json!({ "files": [
        { "name": "lib/tool.py", "content": "def twice(x):\n    return 2 * x\n" , "encoding": "base64" },
        { "name": "main.py", "content": "from lib.tool import twice\nprint(twice(int(open('n.txt').read())), __file__)\n" },
        { "name": "n.txt", "content": "3231", "encoding": "hex" }
    ]});
    let mut piston = piston;
    piston["files"][0]["content"] = json!("ZGVmIHR3aWNlKHgpOgogICAgcmV0dXJuIDIgKiB4Cg==");
    let body = execute(&service, "", &piston);
    assert_eq!(body["run"]["stdout"], "42 main.py\n", "{body}");
    service.is_well();
    service.stop();
}

#[test]
fn what_cannot_be_fetched_is_said_and_holds_nothing_up() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let fetch = json!({ "fetch_files": ["a"], "run_timeout": 5 });
    for (code, why) in [
        ("pass\n", "\"a\" is missing"),
        ("import os\nos.mkfifo('a')\n", "\"a\" is missing"),
        ("import os\nos.mkdir('a')\n", "\"a\" is missing"),
        ("with open('a', 'wb') as f:\n    f.truncate(20 << 20)\n", "does not fit into 16 MiB"),
        ("import os\nopen('a', 'w').close()\nos._exit(0)\n", "\"a\" was not read"),
        // A program that closes or fills what it was not given.
        ("import os\nos.closerange(3, 100)\nopen('a', 'w').close()\n", "\"a\" was not read"),
        ("import os\nos.pwrite(6, b'\\x01\\0\\0\\0' + b'\\xf0' * 8, 0)\nos._exit(0)\n", "\"a\" was not read"),
        ("import os\nos.pwrite(6, b'\\xff' * (1 << 20), 0)\nos._exit(0)\n", "\"a\" was not read"),
    ] {
        let body = run_code(&service, code, &fetch);
        assert_eq!((&body["status"], &body["files"]), (&json!("Failed"), &json!({})), "{code}: {body}");
        assert!(body["message"].as_str().unwrap().contains(why), "{code}: {}", body["message"]);
    }
    // A link leads where the program itself may look, and nowhere else.
    let link = "import os\nos.symlink('/proc/sys/kernel/hostname', 'a')\nprint(open('a').read(), end='')\n";
    let body = run_code(&service, link, &fetch);
    let linked = body["files"]["a"].as_str().map(|text| STANDARD.decode(text).unwrap());
    assert_eq!(body["run_result"]["stdout"], "sandbox\n", "{body}");
    // A file of /proc has no size; whatever came back is no more than the program could read.
    assert!(linked.is_none_or(|bytes| b"sandbox\n".starts_with(&bytes)), "{body}");
    let link = "import os\nos.symlink('/opt/rlox/driver.pyc', 'a')\nprint(os.path.getsize('a'))\n";
    let body = run_code(&service, link, &fetch);
    let size = body["files"]["a"].as_str().map(|text| STANDARD.decode(text).unwrap().len());
    assert_eq!(
        body["run_result"]["stdout"].as_str().map(str::trim),
        size.map(|size| size.to_string()).as_deref()
    );
    service.is_well();
    service.stop();
}

#[test]
fn many_megabytes_go_in() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let large = "x".repeat(20 << 20);
    let more = json!({ "files": [
        { "name": "main.py", "content": "print(len(open('large').read()), len(input()))\n" },
        { "name": "large", "content": large }
    ], "stdin": large });
    let body = execute(&service, "", &more);
    let bytes = 20 << 20;
    assert_eq!(body["run"]["stdout"], format!("{bytes} {bytes}\n"), "{}", body["run"]["stderr"]);
    assert!(piston_succeeds(&body));
    service.is_well();
    service.stop();
}
