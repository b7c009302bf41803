//! `GET /openapi.json`: the interface as it is routed. `docs/openapi.json` is the same text, and a test compares them.

use std::sync::OnceLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;

use super::{dialects, open, sweeps, verification};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "rlox",
        description = "Runs Python written by a language model in ephemeral containers, and trains with it. Errors are RFC 9457 problem documents. The bearer token is needed where the service was started with one."
    ),
    security((), ("token" = [])),
    modifiers(&Token),
    tags(
        (name = "verification", description = "Snippets in, verdicts out: docs/verify-protocol.md"),
        (name = "dialects", description = "What other servers' clients ask: docs/dialects.md"),
        (name = "sweeps", description = "The benchmark's trainings: docs/sweeps.md"),
        (name = "service", description = "The service itself")
    )
)]
struct Document;

/// The token of `--token-file`.
struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        document.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

/// The description of every route, as JSON.
pub(crate) fn document() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let routes = OpenApiRouter::with_openapi(Document::openapi()).merge(verification()).merge(dialects());
        let routes = routes.merge(sweeps::routes());
        let mut text = routes.merge(open()).into_openapi().to_pretty_json().unwrap_or_default();
        text.push('\n');
        text
    })
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "service", security(()), responses((status = 200, body = Object)))]
pub(super) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document()).into_response()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_committed_description_is_the_present_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == document(),
            "docs/openapi.json is out of date; write it with: rlox-controller openapi > docs/openapi.json"
        );
    }

    #[test]
    fn every_call_is_described_with_its_answers() {
        let document: Value = serde_json::from_str(document()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        for path in [
            "/health",
            "/metrics",
            "/openapi.json",
            "/verify",
            "/verify/batch",
            "/run_code",
            "/submit",
            "/v1/ping",
            "/api/v2/execute",
            "/api/v2/runtimes",
            "/v1/sweeps",
            "/v1/sweeps/{id}",
            "/v1/sweeps/{id}/trials",
            "/v1/sweeps/{id}/events",
            "/v1/sweeps/{id}/cancel",
            "/v1/sweeps/{id}/resume",
            "/v1/sweeps/{id}/summary",
            "/v1/trials/{id}/logs",
        ] {
            let calls = paths.get(path).and_then(Value::as_object).unwrap_or_else(|| panic!("{path}"));
            for (method, call) in calls {
                assert!(call["summary"].is_string() || call["description"].is_string(), "{method} {path}");
                assert!(call["responses"].as_object().is_some_and(|all| !all.is_empty()), "{method} {path}");
            }
        }
        for name in ["Plan", "SweepView", "TrialView", "Event", "VerifyRequest", "VerifyResponse", "Problem"]
        {
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
        // Every reference leads somewhere.
        let mut stack = vec![&document];
        while let Some(value) = stack.pop() {
            if let Some(place) = value.get("$ref").and_then(Value::as_str) {
                assert!(document.pointer(place.trim_start_matches('#')).is_some(), "{place}");
            }
            stack.extend(value.as_object().into_iter().flat_map(|object| object.values()));
            stack.extend(value.as_array().into_iter().flatten());
        }
    }
}
