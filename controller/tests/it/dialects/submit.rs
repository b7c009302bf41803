//! `POST /submit`: cases of input and output that come with the request.

use serde_json::{Value, json};

use crate::support::{Service, ready};

fn submission(code: &str, cases: &[(&str, &str)], config: &Value) -> Value {
    let cases: Vec<_> = cases
        .iter()
        .map(|(stdin, stdout)| json!({ "input": { "stdin": stdin }, "output": { "stdout": stdout } }))
        .collect();
    let mut body = json!({
        "dataset": "anything", "id": "p1", "completion": format!("Here it is:\n```python\n{code}\n```\n"),
        "config": { "language": "python", "provided_data": { "test": cases }, "run_timeout": 5 },
    });
    for (key, value) in config.as_object().unwrap() {
        body["config"][key] = value.clone();
    }
    body
}

#[test]
fn every_case_has_to_pass() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let sum = "a, b = map(int, input().split())\nprint(a + b)";
    let cases = [("1 2\n", "3\n"), ("5 5\n", "10"), ("0 0\n", "0.0000001")];
    let answer = service.post("/submit", &submission(sum, &cases[..2], &json!({}))).json();
    assert_eq!(
        (&answer["accepted"], &answer["id"], &answer["extracted_code"]),
        (&json!(true), &json!("p1"), &json!(sum))
    );
    assert_eq!(answer["tests"].as_array().map(Vec::len), Some(2));
    assert_eq!(answer["tests"][0]["exec_info"]["status"], "Success");
    assert_eq!(answer["tests"][0]["test_info"]["output"]["stdout"], "3\n");
    // The first failure ends it, unless all are wanted.
    let wrong = [("1 2\n", "4\n"), ("5 5\n", "10")];
    let answer = service.post("/submit", &submission(sum, &wrong, &json!({}))).json();
    assert_eq!((&answer["accepted"], answer["tests"].as_array().map(Vec::len)), (&json!(false), Some(1)));
    let all = json!({ "extra": { "run_all_cases": true } });
    let answer = service.post("/submit", &submission(sum, &wrong, &all)).json();
    assert_eq!((&answer["accepted"], &answer["tests"][1]["passed"]), (&json!(false), &json!(true)));
    // Right output of a program that leaves past the interpreter.
    let early = "import os\nprint(3, flush=True)\nos._exit(0)";
    let answer = service.post("/submit", &submission(early, &[("", "3")], &json!({}))).json();
    assert_eq!(
        (&answer["accepted"], &answer["tests"][0]["exec_info"]["status"]),
        (&json!(false), &json!("Failed"))
    );
    // Output is compared, so `sys.exit` is an end.
    let honest = "import sys\nprint(3)\nsys.exit(0)\nprint(4)";
    let answer = service.post("/submit", &submission(honest, &[("", "3")], &json!({}))).json();
    assert_eq!(answer["accepted"], true, "{answer}");
    let mut none = submission(sum, &cases[..1], &json!({}));
    none["completion"] = json!("I do not know.");
    let answer = service.post("/submit", &none).json();
    assert_eq!((&answer["accepted"], &answer["tests"]), (&json!(false), &json!([])));
    let refused =
        service.post("/submit", &submission(sum, &cases, &json!({ "custom_extract_logic": "print(1)" })));
    assert!(refused.is_problem(422)["detail"].as_str().unwrap().contains("custom_extract_logic"));
    service.is_well();
    service.stop();
}
