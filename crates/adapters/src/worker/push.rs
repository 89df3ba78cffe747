//! Sends a job to the URL in its definition, signed by the venue as Standard Webhooks describe.

use catena_api::webhook;
use catena_engine::operations::{Delivered, Delivery, Problem};
use catena_engine::{Failure, Operation};
use catena_value::{Value, json};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use url::Url;

use super::at;
use crate::http::policy::{is_json, status_failure};
use crate::outbound::{Outbound, Redirects, Request, Response, check_url};

/// Identifies one attempt, so that a receiver recognises a document that it was sent before.
const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACE: HeaderName = HeaderName::from_static("traceparent");
const WEBHOOK_ID: HeaderName = HeaderName::from_static(webhook::ID_HEADER);
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static(webhook::TIMESTAMP_HEADER);
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static(webhook::SIGNATURE_HEADER);

/// Reads the member `url` of a definition. `None` if there is none.
pub(super) fn parse_url(operation: &Operation) -> Option<Result<Url, Problem>> {
    let value = operation.member("url").filter(|value| !value.is_nil())?;
    let text = value.as_str().ok_or_else(|| "must be a text".to_owned());
    let url = text.and_then(|text| Url::parse(text).map_err(|error| error.to_string()));
    let url = url.and_then(|url| check_url(&url).map(|()| url));
    Some(url.map_err(|problem| at("url", problem)))
}

/// Sends a job. The future can be dropped at any time.
pub(super) async fn deliver(outbound: &Outbound, delivery: &Delivery) -> Delivered {
    match send(outbound, delivery).await {
        Ok(delivered) => delivered,
        Err(failure) => Delivered::Ended(Err(failure)),
    }
}

async fn send(outbound: &Outbound, delivery: &Delivery) -> Result<Delivered, Failure> {
    let url = match parse_url(&delivery.operation) {
        Some(Ok(url)) => url,
        Some(Err((_, problem))) => return Err(Failure::new("invalid_url", problem)),
        None => return Err(Failure::new("invalid_url", "the definition has no `url`")),
    };
    // The document is complete, so this fails only if it is too large to be sent.
    let body = json::to_string(&delivery.document);
    let body = body.map_err(|error| Failure::new("too_large", error.to_string()))?;
    // Nothing is signed before it may be sent, so that the time in the signature is current.
    delivery.control.proceed().await;
    let seconds = delivery.control.now().div_euclid(1_000);
    let request = request(url, delivery, body, seconds)?;
    let host = request.host();
    let response = outbound.send(request, &delivery.control).await?;
    match response.status {
        StatusCode::ACCEPTED => Ok(Delivered::Accepted),
        status if status.is_success() => Ok(Delivered::Ended(output(&host, response))),
        _ => Err(status_failure(&host, &response, delivery.control.now())),
    }
}

/// `seconds` is Unix time.
fn request(url: Url, delivery: &Delivery, body: String, seconds: i64) -> Result<Request, Failure> {
    let id = format!("{}-{}", delivery.job, delivery.attempt);
    let sign = |content: &[u8]| delivery.identity.sign(content);
    let signature = webhook::sign(&id, seconds, body.as_bytes(), sign);
    let mut request = Request::new(Method::POST, url);
    let headers = [
        (CONTENT_TYPE, "application/json".to_owned()),
        (KEY, id.clone()),
        (TRACE, delivery.trace.clone()),
        (WEBHOOK_ID, id),
        (WEBHOOK_TIMESTAMP, seconds.to_string()),
        (WEBHOOK_SIGNATURE, signature),
    ];
    for (name, value) in headers {
        let value = HeaderValue::try_from(value);
        let value = value.map_err(|error| Failure::new("invalid_header", error.to_string()))?;
        request.headers.insert(name, value);
    }
    request.body = body.into();
    request.redirects = Redirects::Return;
    request.time = delivery.time;
    Ok(request)
}

/// The output in a response: its JSON, else its text. An empty body is null.
fn output(host: &str, response: Response) -> Result<Value, Failure> {
    let is_json = response.headers.get(CONTENT_TYPE).is_some_and(is_json);
    let invalid =
        |why: String| Failure::new("invalid_output", format!("the answer of {host} {why}"));
    if response.body.is_empty() {
        return Ok(Value::Nil);
    }
    if is_json {
        let read = json::read(&response.body);
        return read.map_err(|error| invalid(format!("is not valid JSON: {error}")));
    }
    let text = String::from_utf8(response.body);
    text.map(Value::from).map_err(|_| invalid("is neither JSON nor text".to_owned()))
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderMap;

    use super::*;
    use crate::fields::value;

    fn answer(content_type: &'static str, body: &[u8]) -> Result<Value, Failure> {
        let headers =
            HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))]);
        output("x:80", Response { status: StatusCode::OK, headers, body: body.to_vec() })
    }

    #[test]
    fn an_answer_is_json_or_text_or_nothing() {
        assert_eq!(answer("application/json", br#"{"a":1}"#).unwrap(), value(r#"{"a":1}"#));
        assert_eq!(answer("text/plain", b"{}").unwrap(), "{}".into());
        assert_eq!(answer("application/json", b"").unwrap(), Value::Nil);
        assert_eq!(answer("application/json", b"{").unwrap_err().code, "invalid_output");
        assert_eq!(answer("text/plain", &[0xff]).unwrap_err().code, "invalid_output");
    }
}
