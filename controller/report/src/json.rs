//! Fields of a JSON object that hostile code may have written: a field of the wrong type or with an
//! implausible value counts as absent, so that neither sums nor axes can be blown up by it.

use serde_json::{Map, Value};

/// Beyond this a number is no measurement of ours, whatever its unit.
const PLAUSIBLE: f64 = 1e15;

/// A JSON object, or `None`.
pub(crate) fn object(bytes: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(map)) => Some(map),
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) | Err(_) => {
            None
        }
    }
}

pub(crate) fn number(map: &Map<String, Value>, field: &str) -> Option<f64> {
    map.get(field)?.as_f64().filter(|value| value.abs() <= PLAUSIBLE)
}

pub(crate) fn non_negative(map: &Map<String, Value>, field: &str) -> Option<f64> {
    number(map, field).filter(|value| *value >= 0.0)
}

/// A whole number; `3.0` counts, since JSON writers differ.
pub(crate) fn count(map: &Map<String, Value>, field: &str) -> Option<u64> {
    let value = non_negative(map, field)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: 0 ..= 1e15, whole")]
    (value.fract() == 0.0).then_some(value as u64)
}

/// At most `limit` characters of a string, without control characters.
pub(crate) fn text(map: &Map<String, Value>, field: &str, limit: usize) -> Option<String> {
    let text = map.get(field)?.as_str()?;
    let mut kept: String = text.chars().take(limit).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(limit).is_some() {
        kept.push('…');
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn implausible_and_mistyped_values_are_absent() {
        let map = object(br#"{"a":1e300,"b":-1,"c":"7","d":2.5,"e":3.0,"f":18446744073709551615,"g":[1]}"#)
            .unwrap();
        assert_eq!(number(&map, "a"), None);
        assert_eq!(number(&map, "b"), Some(-1.0));
        assert_eq!(non_negative(&map, "b"), None);
        assert_eq!(count(&map, "c"), None);
        assert_eq!(count(&map, "d"), None);
        assert_eq!(count(&map, "e"), Some(3));
        assert_eq!(count(&map, "f"), None);
        assert_eq!(count(&map, "g"), None);
    }

    #[test]
    fn only_objects_are_taken() {
        for bytes in [&b"[]"[..], b"1", b"null", b"{\"a\":NaN}", b"{\"a\":1e999}", b"", b"\xff", b"{}x"] {
            assert_eq!(object(bytes), None, "{bytes:?}");
        }
        assert!(object(&b"[".repeat(100_000)).is_none());
    }

    #[test]
    fn text_is_bounded_and_has_no_control_characters() {
        let map = object(br#"{"a":"one\ntwo\u001b[31m","b":"xxxxxx"}"#).unwrap();
        assert_eq!(text(&map, "a", 20).as_deref(), Some("one two [31m"));
        assert_eq!(text(&map, "b", 3).as_deref(), Some("xxx…"));
        assert_eq!(text(&map, "c", 3), None);
    }
}
