//! The pinned corpus through `/verify`: what is hostile is contained and never rewarded, what is honest passes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Service, host, ready};

fn read(name: &str) -> String {
    std::fs::read_to_string(host::checkout().join("corpus").join(name)).unwrap()
}

fn adversarial() -> Value {
    serde_json::from_str(&read("adversarial_corpus_v1.json")).unwrap()
}

/// Snippets of one family, in the corpus's order.
fn snippets(corpus: &Value, family: &str) -> Vec<Value> {
    let all = corpus["snippets"].as_array().unwrap();
    all.iter().filter(|snippet| snippet["family"] == family).cloned().collect()
}

fn tests_of(corpus: &Value, snippet: &Value) -> Value {
    snippet.get("tests").unwrap_or(&corpus["tests"]).clone()
}

/// What is wrong with the answer to a hostile snippet.
fn complaint(snippet: &Value, got: &Value) -> Option<String> {
    let expected = snippet["expect"]["verdicts"].as_array().unwrap();
    let mut complaints = Vec::new();
    if !expected.contains(&got["verdict"]) {
        complaints.push(format!("verdict {} instead of {}", got["verdict"], snippet["expect"]["verdicts"]));
    }
    if got["reward"] != 0.0 {
        complaints.push(format!("reward {}", got["reward"]));
    }
    if got["stdout"].as_str().is_none_or(|text| text.contains("ESCAPED")) {
        complaints.push("ESCAPED".into());
    }
    if got["tests"].to_string().contains("ESCAPED") {
        complaints.push("ESCAPED in a test's message".into());
    }
    if got["containment"]["leftovers"] != 0 {
        complaints.push(format!("leftovers {}", got["containment"]["leftovers"]));
    }
    (!complaints.is_empty()).then(|| format!("{}: {}\n  {got}", snippet["id"], complaints.join(", ")))
}

/// Where a program's interpreter comes from; what holds, holds for both.
const INTERPRETERS: [&str; 2] = ["warm", "exec"];

/// A service whose programs get their interpreter so; none where this host cannot do that.
#[track_caller]
fn service(interpreter: &str, timeout_secs: u64) -> Option<Service> {
    let service = Service::with(&["--interpreter", interpreter, "--timeout-secs", &timeout_secs.to_string()]);
    let pool = service.get("/health").json()["pool"].clone();
    let as_asked = pool["mode"] == interpreter;
    host::need(as_asked, &format!("a Python that can be embedded: {}", pool["reason"])).then_some(service)
}

fn contained(family: &str) {
    if !ready() {
        return;
    }
    for interpreter in INTERPRETERS {
        if let Some(service) = service(interpreter, 5) {
            contained_by(service, family);
        }
    }
}

fn contained_by(service: Service, family: &str) {
    let corpus = adversarial();
    let mut complaints = Vec::new();
    for snippet in snippets(&corpus, family) {
        let attack = |timeout_secs: u32| {
            let request = json!({ "code": snippet["code"], "tests": tests_of(&corpus, &snippet),
                "timeout_secs": timeout_secs, "memory_mb": 256 });
            service.post("/verify", &request)
        };
        let mut answer = attack(2);
        let late = json!("timeout");
        let meant = snippet["expect"]["verdicts"].as_array().unwrap().contains(&late);
        if answer.status == 200 && answer.json()["verdict"] == late && !meant {
            // The machine is busy with other tests: with all the time that the service grants.
            answer = attack(5);
        }
        match answer.status {
            200 => complaints.extend(complaint(&snippet, &answer.json())),
            status => complaints.push(format!("{}: status {status}: {}", snippet["id"], answer.body)),
        }
        // Whatever it did, the next one is not affected.
        service.is_well();
    }
    assert!(complaints.is_empty(), "{} of family {family}:\n{}", complaints.len(), complaints.join("\n"));
    service.stop();
}

macro_rules! families {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            contained(stringify!($name));
        })*

        #[test]
        fn no_family_is_left_out() {
            let corpus = adversarial();
            let all = corpus["snippets"].as_array().unwrap();
            let found: BTreeSet<_> = all.iter().filter_map(|snippet| snippet["family"].as_str()).collect();
            assert_eq!(found, BTreeSet::from([$(stringify!($name)),*]));
            assert_eq!(all.len(), 100);
        }
    };
}

families! { equality exhaustion exit introspection kernel output patching runtime survival }

/// Sends many at once; returns those that did not get this verdict and reward.
fn others(service: &Service, requests: &[(String, Value)], verdict: &str, reward: f64) -> Vec<String> {
    let bodies: Vec<_> = requests.iter().map(|(_, body)| body.clone()).collect();
    let results = service.batch(&bodies);
    let other = |got: &Value| {
        got["verdict"] != verdict || got["reward"] != reward || got["containment"]["leftovers"] != 0
    };
    requests
        .iter()
        .zip(results)
        .filter(|(_, got)| other(got))
        .map(|((name, _), got)| format!("{name}: {got}"))
        .collect()
}

#[track_caller]
fn all(requests: &[(String, Value)], verdict: &str, reward: f64) {
    for interpreter in INTERPRETERS {
        all_by(interpreter, requests, verdict, reward);
    }
}

#[track_caller]
fn all_by(interpreter: &str, requests: &[(String, Value)], verdict: &str, reward: f64) {
    assert!(!requests.is_empty());
    let Some(service) = service(interpreter, PATIENT) else { return };
    let others = others(&service, requests, verdict, reward);
    assert!(
        others.is_empty(),
        "{interpreter}: {} of {} are not {verdict}:\n{}",
        others.len(),
        requests.len(),
        others.join("\n")
    );
    service.stop();
}

#[test]
fn every_honest_twin_passes() {
    if !ready() {
        return;
    }
    let corpus = adversarial();
    let twins: Vec<_> = corpus["snippets"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|snippet| snippet["twin"].is_string())
        .map(|snippet| {
            (
                snippet["id"].to_string(),
                json!({ "code": snippet["twin"], "tests": tests_of(&corpus, snippet) }),
            )
        })
        .collect();
    assert_eq!(twins.len(), 38);
    all(&twins, "passed", 1.0);
}

/// Seconds for what has to pass: a machine that is busy with other tests must not turn it into a timeout.
const PATIENT: u64 = 60;

/// The request of a program of the corpora.
fn request(program: &Value, timeout_secs: u64) -> (String, Value) {
    let mut body = json!({ "code": program["code"], "timeout_secs": timeout_secs });
    for kind in ["tests", "stdio", "output_bytes"] {
        if let Some(value) = program.get(kind) {
            body[kind] = value.clone();
        }
    }
    (program["id"].to_string(), body)
}

fn programs(name: &str) -> Vec<Value> {
    let corpus: Value = serde_json::from_str(&read(name)).unwrap();
    corpus["programs"].as_array().unwrap().clone()
}

/// The families of tricks that the forging suite has to cover.
const FAMILIES: [&str; 6] = ["equality", "exit", "introspection", "output", "patching", "survival"];

#[test]
fn no_forgery_is_rewarded_and_every_honest_twin_of_one_is() {
    if !ready() {
        return;
    }
    let programs = programs("forgeries_v1.json");
    let wrong = |family: &str| {
        programs.iter().filter(|each| each["family"] == family && each["rewarded"] == false).count()
    };
    for family in FAMILIES {
        assert!(wrong(family) >= 20, "{family}: {}", wrong(family));
    }
    assert!(programs.iter().filter(|each| each["rewarded"] == true).count() >= 80);
    let Some(service) = service("warm", PATIENT) else { return };
    let requests: Vec<_> = programs
        .iter()
        .map(|each| request(each, if each["rewarded"] == true { PATIENT } else { 5 }))
        .collect();
    let bodies: Vec<_> = requests.iter().map(|(_, body)| body.clone()).collect();
    let results = service.batch(&bodies);
    let other: Vec<_> = programs
        .iter()
        .zip(&results)
        .filter(|(program, got)| {
            let reward = if program["rewarded"] == true { 1.0 } else { 0.0 };
            got["reward"] != reward || got["containment"]["leftovers"] != 0
        })
        .map(|(program, got)| format!("{}: {got}", program["id"]))
        .collect();
    assert!(other.is_empty(), "{} of {}:\n{}", other.len(), programs.len(), other.join("\n"));
    service.stop();
}

#[test]
fn every_honest_program_passes() {
    if !ready() {
        return;
    }
    let programs: Vec<_> = programs("honest_v1.json").iter().map(|each| request(each, PATIENT)).collect();
    assert!(programs.len() >= 300, "{}", programs.len());
    all_by("warm", &programs, "passed", 1.0);
    // What decides is the same; this is about the interpreter.
    let some: Vec<_> = programs.into_iter().step_by(4).collect();
    all_by("exec", &some, "passed", 1.0);
}

fn tasks() -> Vec<Value> {
    read("tasks_v1.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_reference_of_a_task_passes() {
    if !ready() {
        return;
    }
    let references: Vec<_> = tasks()
        .iter()
        .map(|task| (task["id"].to_string(), json!({ "code": task["reference"], "tests": task["tests"] })))
        .collect();
    all(&references, "passed", 1.0);
}

#[test]
fn every_wrong_answer_to_a_task_fails() {
    if !ready() {
        return;
    }
    let mut wrong = Vec::new();
    for task in tasks() {
        for (number, code) in task["wrong"].as_array().unwrap().iter().enumerate() {
            wrong.push((format!("{} {number}", task["id"]), json!({ "code": code, "tests": task["tests"] })));
        }
    }
    all(&wrong, "failed", 0.0);
}
