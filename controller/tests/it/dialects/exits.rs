//! A program that leaves with code 0 before its own end is no success, in whatever way it leaves.

use serde_json::json;

use super::{counter, execute, piston_succeeds, run_code, sandbox_fusion_succeeds};
use crate::support::{Service, ready};

/// Ways to leave early, each with a program that does something alike and comes to its end.
const EXITS: [(&str, &str, &str); 21] = [
    (
        "sys.exit before a check",
        "import sys\ndef f(x):\n    return 2\nsys.exit(0)\nassert f(1) == 1\n",
        "import sys\ndef f(x):\n    return x\nassert f(1) == 1\nsys.exit(0)\n",
    ),
    (
        "raise SystemExit before a check",
        "raise SystemExit\nassert 1 == 2\n",
        "def main():\n    return None\nif __name__ == '__main__':\n    raise SystemExit(main())\n",
    ),
    (
        "sys.exit(main()) with a check after it",
        "import sys\ndef main():\n    return 0\nif __name__ == '__main__':\n    sys.exit(main())\nassert 1 == 2\n",
        "import sys\ndef main():\n    return 0\nif __name__ == '__main__':\n    sys.exit(main())\n",
    ),
    (
        "a subclass of SystemExit that lies",
        "class Zero(int):\n    def __eq__(self, other): return False\n    __hash__ = int.__hash__\nclass Leave(SystemExit):\n    code = property(lambda self: Zero())\n    __traceback__ = property(lambda self: None)\nraise Leave\nassert 1 == 2\n",
        "class Leave(SystemExit):\n    pass\nassert 1 == 1\nraise Leave(0)\n",
    ),
    (
        "exit() in a function that an assertion calls",
        "def f(x):\n    exit()\nassert f(1) == 1\n",
        "def f(x):\n    return x\nassert f(1) == 1\n",
    ),
    (
        "sys.exit in a function that a function with checks calls",
        "import sys\ndef f(x):\n    sys.exit()\ndef check(candidate):\n    got = candidate(1)\n    assert got == 1\ncheck(f)\n",
        "def f(x):\n    return x\ndef check(candidate):\n    got = candidate(1)\n    assert got == 1\ncheck(f)\n",
    ),
    (
        "two statements on the last line",
        "import sys\nsys.exit(0); assert 1 == 2\n",
        "import sys\nassert 1 == 1\nsys.exit(0)\n",
    ),
    (
        "sys.exit in a function that a check by another name calls",
        "import sys\nclass Check:\n    def assertEqual(self, one, two):\n        assert one == two\ndef f(x):\n    sys.exit(0)\nCheck().assertEqual(f(1), 1)\n",
        "class Check:\n    def assertEqual(self, one, two):\n        assert one == two\ndef f(x):\n    return x\nCheck().assertEqual(f(1), 1)\n",
    ),
    (
        "sys.exit in a function that a check by raise calls",
        "import sys\ndef f(x):\n    sys.exit(0)\nif f(1) != 1: raise AssertionError('no')\n",
        "def f(x):\n    return x\nif f(1) != 1: raise AssertionError('no')\n",
    ),
    (
        "sys.exit below checks in a text of their own",
        "import sys\ndef f(x):\n    sys.exit(0)\nexec('assert f(1) == 1')\n",
        "def f(x):\n    return x\nexec('assert f(1) == 1')\n",
    ),
    (
        "sys.exit below checks in a file of their own",
        "with open('checks.py', 'w') as file:\n    file.write('import sys\\nassert sys.exit(0) is None\\n')\nimport checks\n",
        "with open('tool.py', 'w') as file:\n    file.write('import sys\\ndef main():\\n    sys.exit(0)\\n')\nimport tool\ntool.main()\n",
    ),
    (
        "os._exit",
        "import os\nos._exit(0)\nassert 1 == 2\n",
        "import os\npid = os.fork()\nif pid == 0:\n    os._exit(0)\nassert os.waitpid(pid, 0) == (pid, 0)\n",
    ),
    (
        "the system call",
        "import ctypes\nctypes.CDLL(None).syscall(231, 0)\nassert 1 == 2\n",
        "import ctypes, os\nassert ctypes.CDLL(None).getpid() == os.getpid()\n",
    ),
    (
        "another program",
        "import os, sys\nos.execv(sys.executable, [sys.executable, '-I', '-S', '-c', 'pass'])\n",
        "import subprocess, sys\nassert subprocess.run([sys.executable, '-I', '-S', '-c', 'pass']).returncode == 0\n",
    ),
    (
        "an exit handler after a failure",
        "import atexit, os\natexit.register(os._exit, 0)\nassert 1 == 2\n",
        "import atexit\natexit.register(print, 'bye')\nassert 1 == 1\n",
    ),
    (
        "exit handlers run early",
        "import atexit, os\natexit._run_exitfuncs()\nos._exit(0)\n",
        "import atexit\natexit.register(print, 'bye')\natexit.unregister(print)\n",
    ),
    (
        "a thread",
        "import os, threading, time\nthreading.Thread(target=lambda: os._exit(0)).start()\ntime.sleep(20)\nassert 1 == 2\n",
        "import threading\nseen = []\nthread = threading.Thread(target=lambda: seen.append(1))\nthread.start()\nthread.join()\nassert seen == [1]\n",
    ),
    (
        "a last word of an object",
        "import os\nclass Last:\n    def __del__(self, leave=os._exit):\n        leave(0)\nlast = Last()\nassert 1 == 2\n",
        "class Last:\n    def __del__(self, say=print):\n        say('bye')\nlast = Last()\nassert 1 == 1\n",
    ),
    (
        "a signal handler",
        "import os, signal, time\nsignal.signal(signal.SIGALRM, lambda *_: os._exit(0))\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\ntime.sleep(20)\nassert 1 == 2\n",
        "import signal, time\nseen = []\nsignal.signal(signal.SIGALRM, lambda *_: seen.append(1))\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\nwhile not seen:\n    time.sleep(0.005)\n",
    ),
    (
        "the parent of a fork",
        "import os, time\nif os.fork():\n    os._exit(0)\ntime.sleep(20)\n",
        "import os\npid = os.fork()\nif pid:\n    os.waitpid(pid, 0)\n",
    ),
    (
        "a killed interpreter",
        "import os\nos.kill(os.getpid(), 9)\nos.abort()\n",
        "import os\nos.kill(os.getpid(), 0)\n",
    ),
];

fn expect_none_succeeds(service: &Service) {
    for (name, early, twin) in EXITS {
        let input = json!({});
        let (first, second) = (run_code(service, early, &input), execute(service, early, &input));
        assert!(!sandbox_fusion_succeeds(&first) && first["status"] == "Failed", "{name}: {first}");
        assert!(!piston_succeeds(&second), "{name}: {second}");
        let (first, second) = (run_code(service, twin, &input), execute(service, twin, &input));
        assert!(sandbox_fusion_succeeds(&first) && first["status"] == "Success", "{name}, honest: {first}");
        assert!(piston_succeeds(&second), "{name}, honest: {second}");
    }
}

#[test]
fn early_is_never_a_success_and_the_honest_twin_is() {
    if !ready() {
        return;
    }
    let service = Service::start();
    expect_none_succeeds(&service);
    for dialect in ["sandbox_fusion", "piston"] {
        let name = format!("rlox_dialect_tampering_total{{dialect=\"{dialect}\",family=\"exit\"}}");
        assert!(counter(&service, &name) >= 10, "{dialect}");
        let name = format!("rlox_dialect_requests_total{{dialect=\"{dialect}\",outcome=\"success\"}}");
        assert_eq!(counter(&service, &name), EXITS.len() as u64, "{dialect}");
    }
    service.is_well();
    service.stop();
}

#[test]
fn early_is_never_a_success_with_an_interpreter_of_its_own() {
    if !ready() {
        return;
    }
    let service = Service::with(&["--workers", "2", "--interpreter", "exec"]);
    expect_none_succeeds(&service);
    service.stop();
}

#[test]
fn an_early_end_is_said_and_seen() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let body = json!({ "code": "import sys\nsys.exit()\nx = 1\n", "language": "python" });
    let answer = service.post("/run_code", &body);
    assert_eq!(answer.header("x-rlox-tampering"), Some("exit_before_end"), "{answer:?}");
    let message = answer.json()["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("left by SystemExit at line 2, before its own end"), "{message}");
    let run = &execute(&service, "import os\nos._exit(0)\n", &json!({}))["run"];
    assert_eq!(
        (&run["code"], &run["status"], &run["signal"]),
        (&json!(1), &json!("RE"), &json!(null)),
        "{run}"
    );
    assert!(run["message"].as_str().unwrap().starts_with("left with code 0 before its own end"), "{run}");
    service.stop();
}

#[test]
fn with_input_sys_exit_anywhere_is_an_end_as_for_verify_and_os_exit_is_not() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let leaves = |how: &str| {
        format!(
            "import os, sys\nn = int(input())\nif n == 1:\n    print('one', flush=True)\n    {how}\nprint('more')\n"
        )
    };
    let stdio = |code: &str| json!({ "code": code, "stdio": [{ "stdin": "1\n", "stdout": "one\n" }] });
    let input = json!({ "stdin": "1\n" });
    for (how, good) in
        [("sys.exit()", true), ("exit(0)", true), ("raise SystemExit", true), ("os._exit(0)", false)]
    {
        let code = leaves(how);
        let (first, second) = (run_code(&service, &code, &input), execute(&service, &code, &input));
        assert_eq!(sandbox_fusion_succeeds(&first), good, "{how}: {first}");
        assert_eq!(piston_succeeds(&second), good, "{how}: {second}");
        assert_eq!(first["run_result"]["stdout"], "one\n", "{how}: {first}");
        let verified = service.verify(&stdio(&code));
        assert_eq!(verified["reward"] == 1.0, good, "{how}: {verified}");
    }
    service.stop();
}

#[test]
fn an_operator_may_take_every_exit_for_an_end() {
    if !ready() {
        return;
    }
    let service = Service::with(&["--workers", "1", "--lenient-exit"]);
    let answer =
        service.post("/run_code", &json!({ "code": "import os\nos._exit(0)\n", "language": "python" }));
    assert_eq!(answer.json()["status"], "Success", "{answer:?}");
    assert_eq!(answer.header("x-rlox-tampering"), Some("exit_before_end"), "it is seen all the same");
    assert!(piston_succeeds(&execute(&service, "import sys\nsys.exit()\nx = 1\n", &json!({}))));
    assert!(!piston_succeeds(&execute(&service, "import os\nos._exit(3)\n", &json!({}))));
    // The other calls stay as strict as they are.
    let early = json!({ "code": "import os\nprint(3, flush=True)\nos._exit(0)", "stdio": [{"stdin": "", "stdout": "3"}] });
    assert_eq!(service.verify(&early)["reward"], 0.0);
    service.stop();
}
