//! SandboxFusion's `POST /submit` for data sets of standard input and output, whose cases come with the request.
//!
//! The comparison is the original's `CommonOJDataset`: lines without white space at their ends and without case, numbers
//! within a relative 1e-5. Python that a caller supplies (`custom_extract_logic`) is refused: it would run here.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::languages::{self, Language};
use super::sandbox_fusion::{Decoded, RunCodeRequest, RunCodeResponse, RunStatus};
use super::{Refusal, Server};
use crate::script::Exits;

/// Most cases of one request.
const MAX_CASES: usize = 200;
/// Bytes of each stream of a case that the answer shows, once it is compared: 200 cases may write 4 MiB each.
const KEPT_BYTES: usize = 16 << 10;
/// Seconds of one case, where the request does not say.
const RUN_TIMEOUT: f64 = 20.0;
/// The only class of data sets that needs nothing but its cases.
const CLASS: &str = "CommonOJDataset";

/// The request body.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub(crate) struct SubmitRequest {
    dataset: String,
    id: Value,
    completion: String,
    config: Config,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = SubmitConfig)]
struct Config {
    dataset_type: Option<String>,
    language: Option<String>,
    run_timeout: Option<f64>,
    custom_extract_logic: Option<String>,
    provided_data: Option<Value>,
    #[serde(default)]
    extra: Extra,
}

#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = SubmitExtra)]
struct Extra {
    #[serde(default)]
    run_all_cases: bool,
}

/// One case, as the request has it.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = SubmitCase)]
struct Case {
    input: Streams,
    output: Streams,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = SubmitStreams)]
struct Streams {
    #[serde(default)]
    stdin: String,
    #[serde(default)]
    stdout: Option<String>,
}

/// What to run, case by case.
#[derive(Debug)]
pub(crate) struct Submission {
    id: Value,
    code: String,
    extracted_type: &'static str,
    language: &'static Language,
    run_timeout: f64,
    pub(crate) run_all: bool,
    cases: Vec<(Case, Value)>,
}

impl SubmitRequest {
    pub(crate) fn decode(self) -> Result<Submission, Refusal> {
        let Self { dataset, id, completion, config } = self;
        if config.custom_extract_logic.is_some() {
            return Refusal::invalid(
                "custom_extract_logic is Python of the caller's; this server does not run it",
            );
        }
        if let Some(class) = config.dataset_type.as_deref().filter(|class| *class != CLASS) {
            return Refusal::invalid(format!(
                "dataset_type {class:?} is not supported; this server has: {CLASS}"
            ));
        }
        let Some(name) = config.language else {
            return Refusal::invalid("config.language is required");
        };
        let language = languages::of_sandbox_fusion(&name)?;
        let wrong = |why: &str| Refusal::Invalid(format!("config.provided_data of {dataset:?} {why}"));
        let mut data = config.provided_data.ok_or_else(|| wrong("is missing"))?;
        let cases = data.get_mut("test").map(Value::take).ok_or_else(|| wrong("has no test"))?;
        let text = cases.as_str().map(serde_json::from_str);
        let cases = text.unwrap_or(Ok(cases)).map_err(|error| wrong(&error.to_string()))?;
        let Value::Array(cases) = cases else { return Err(wrong("has a test that is no list")) };
        if cases.is_empty() || cases.len() > MAX_CASES {
            return Err(wrong(&format!("has {} cases; this server takes 1 to {MAX_CASES}", cases.len())));
        }
        let case = |value: Value| {
            let case: Case =
                serde_json::from_value(value.clone()).map_err(|error| wrong(&error.to_string()))?;
            match case.output.stdout {
                Some(_) => Ok((case, value)),
                None => Err(wrong("has a case without output.stdout")),
            }
        };
        let cases = cases.into_iter().map(case).collect::<Result<_, _>>()?;
        let (code, extracted_type) = extract(&completion, language);
        let run_timeout = config.run_timeout.unwrap_or(RUN_TIMEOUT);
        Ok(Submission {
            id,
            code,
            extracted_type,
            language,
            run_timeout,
            run_all: config.extra.run_all_cases,
            cases,
        })
    }
}

impl Submission {
    /// How many runs there are; none where there is no program.
    pub(crate) fn runs(&self) -> usize {
        if self.code.is_empty() { 0 } else { self.cases.len() }
    }

    /// One of them. Its time begins when it is asked for.
    pub(crate) fn run(&self, index: usize, server: &Server) -> Result<Decoded, Refusal> {
        let missing = || Refusal::Fault(format!("there is no case {index}"));
        let (case, _) = self.cases.get(index).ok_or_else(missing)?;
        let request =
            RunCodeRequest::of(self.language, self.code.clone(), case.input.stdin.clone(), self.run_timeout);
        let mut decoded = request.decode(server, Instant::now())?;
        // Output is compared here, also where there is no input.
        if let Some(script) = decoded.job.script.as_mut().filter(|script| script.exits == Exits::Last) {
            script.exits = Exits::Anywhere;
        }
        Ok(decoded)
    }

    /// A case's result.
    pub(crate) fn judge(&self, index: usize, exec_info: RunCodeResponse) -> CaseResult {
        let (case, info) = match self.cases.get(index) {
            Some((case, info)) => (case.output.stdout.as_deref(), info.clone()),
            None => (None, Value::Null),
        };
        let right = case.is_some_and(|expected| same(exec_info.stdout(), expected));
        let exec_info = exec_info.shortened(KEPT_BYTES);
        CaseResult { passed: exec_info.status == RunStatus::Success && right, exec_info, test_info: info }
    }

    /// The answer to all of it.
    pub(crate) fn answer(self, tests: Vec<CaseResult>) -> SubmitResponse {
        let accepted = tests.len() == self.cases.len() && tests.iter().all(|test| test.passed);
        let (id, extracted_code, extracted_type) = (self.id, self.code, self.extracted_type);
        let none = None;
        SubmitResponse {
            id,
            accepted,
            extracted_code,
            full_code: none,
            test_code: none,
            tests,
            extracted_type,
            extra: none,
        }
    }
}

/// One case of the answer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SubmitCaseResult)]
pub(crate) struct CaseResult {
    pub(crate) passed: bool,
    exec_info: RunCodeResponse,
    test_info: Value,
}

/// The response body.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SubmitResponse {
    id: Value,
    pub(crate) accepted: bool,
    extracted_code: String,
    full_code: Option<()>,
    test_code: Option<()>,
    tests: Vec<CaseResult>,
    extracted_type: &'static str,
    extra: Option<()>,
}

/// The program in a model's text: the first whole fenced block of the language, or else the first; without any, what
/// comes after a fence that is not closed.
fn extract(completion: &str, language: &Language) -> (String, &'static str) {
    let mut blocks: Vec<(&str, String)> = Vec::new();
    let mut open: Option<(&str, Vec<&str>)> = None;
    for line in completion.split('\n') {
        open = match (open.take(), line.trim_start().strip_prefix("```")) {
            (Some((mark, lines)), Some(_)) => {
                blocks.push((mark, lines.join("\n")));
                None
            }
            (Some((mark, mut lines)), None) => {
                lines.push(line);
                Some((mark, lines))
            }
            (None, Some(mark)) => Some((mark.trim(), Vec::new())),
            (None, None) => None,
        };
    }
    let named = |block: &&(&str, String)| language.fences.contains(&block.0);
    match (blocks.iter().find(named).or_else(|| blocks.first()), open) {
        (Some((_, code)), _) => (code.clone(), "fenced"),
        (None, Some((_, lines))) => (lines.join("\n"), "incomplete_fenced"),
        (None, None) => (String::new(), "empty"),
    }
}

/// Whether output is the expected one, by the original's rule.
fn same(got: &str, expected: &str) -> bool {
    let lines =
        |text: &str| text.trim().split('\n').map(|line| line.trim().to_lowercase()).collect::<Vec<_>>();
    let (got, expected) = (lines(got), lines(expected));
    got.len() == expected.len()
        && got.iter().zip(&expected).all(|(got, expected)| got == expected || close(got, expected))
}

fn close(got: &str, expected: &str) -> bool {
    match (got.parse::<f64>(), expected.parse::<f64>()) {
        (Ok(got), Ok(expected)) => (got - expected).abs() / expected.abs().max(1e-10) < 1e-5,
        (Ok(_) | Err(_), Ok(_) | Err(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::server;
    use super::*;

    fn decode(body: Value) -> Result<Submission, String> {
        let request: SubmitRequest = serde_json::from_value(body).map_err(|error| error.to_string())?;
        request.decode().map_err(|error| error.to_string())
    }

    fn request(config: Value) -> Value {
        json!({ "dataset": "any", "id": 7, "completion": "Here:\n```python\nprint(1)\n```\n", "config": config })
    }

    #[test]
    fn cases_come_as_a_list_or_as_text() {
        let cases = json!([{ "input": { "stdin": "1\n" }, "output": { "stdout": "1\n" } }]);
        for test in [cases.clone(), Value::String(cases.to_string())] {
            let config = json!({ "language": "python", "provided_data": { "test": test }, "run_timeout": 3 });
            let submission = decode(request(config)).unwrap();
            assert_eq!((submission.code.as_str(), submission.extracted_type), ("print(1)", "fenced"));
            assert_eq!(submission.runs(), 1);
            let run = submission.run(0, &server()).unwrap();
            assert_eq!(run.job.script.unwrap().stdin, "1\n");
            assert!(submission.run(1, &server()).is_err());
        }
    }

    #[test]
    fn callers_python_and_other_data_sets_are_refused() {
        let case = json!([{ "input": {}, "output": { "stdout": "" } }]);
        for (config, why) in [
            (
                json!({ "language": "python", "provided_data": { "test": case }, "custom_extract_logic": "1" }),
                "does not run it",
            ),
            (
                json!({ "language": "python", "provided_data": { "test": case }, "dataset_type": "HumanEvalDataset" }),
                "CommonOJ",
            ),
            (json!({ "language": "cpp", "provided_data": { "test": case } }), "runs: python"),
            (json!({ "provided_data": { "test": case } }), "language"),
            (json!({ "language": "python" }), "missing"),
            (json!({ "language": "python", "provided_data": { "test": [] } }), "0 cases"),
            (
                json!({ "language": "python", "provided_data": { "test": [{ "input": {}, "output": {} }] } }),
                "stdout",
            ),
        ] {
            let error = decode(request(config.clone())).unwrap_err();
            assert!(error.contains(why), "{config}: {error}");
        }
    }

    #[test]
    fn the_program_is_the_first_block_of_its_language() {
        let python = &languages::LANGUAGES[0];
        for (text, code, kind) in [
            ("```cpp\nx\n```\n```python\ny\nz\n```", "y\nz", "fenced"),
            ("```\nx\n  ```", "x", "fenced"),
            ("text\n```py\nx\ny", "x\ny", "incomplete_fenced"),
            ("no program", "", "empty"),
        ] {
            assert_eq!(extract(text, python), (code.to_owned(), kind), "{text}");
        }
    }

    #[test]
    fn output_is_compared_by_the_originals_rule() {
        for (got, expected) in
            [("3\n", "3"), (" Yes \nno", "yes\nNO\n"), ("1.000001", "1"), ("-0.5", "-0.500001")]
        {
            assert!(same(got, expected), "{got:?} {expected:?}");
        }
        for (got, expected) in
            [("", "3"), ("3\n4", "3"), ("1.1", "1"), ("nan", "1"), ("inf", "1"), ("a", "b")]
        {
            assert!(!same(got, expected), "{got:?} {expected:?}");
        }
    }

    #[test]
    fn accepted_is_every_case_and_none_left_out() {
        let case = json!({ "input": {}, "output": { "stdout": "" } });
        let config = json!({ "language": "python", "provided_data": { "test": [case, case] } });
        let answer = |results: usize| {
            let submission = decode(request(config.clone())).unwrap();
            let exec_info = RunCodeResponse::sandbox_error("");
            let result = |passed| CaseResult { passed, exec_info: exec_info.clone(), test_info: Value::Null };
            submission.answer((0..results).map(|_| result(true)).collect()).accepted
        };
        assert!(!answer(0) && !answer(1) && answer(2));
    }
}
