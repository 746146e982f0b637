//! Answers that have no end, or more of one than anybody needs: whoever writes a config URL chooses
//! who answers, and gets no more of our memory than the limits.

use std::sync::atomic::{AtomicUsize, Ordering};

use impresario::actions::AnswerLimit;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::world::*;

/// What is sent may be on its way, in buffers of the system.
const ON_ITS_WAY: usize = 8 << 20;
const CHUNKED: &str = "Transfer-Encoding: chunked";

/// Answers every request with a head, and with one piece after the other for as long as somebody
/// takes them.
struct Pouring {
    url: String,
    sent: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Pouring {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pouring(status: &str, header: &str, piece: &'static [u8]) -> Pouring {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let head = format!("HTTP/1.1 {status}\r\nActivityId: act-7\r\n{header}\r\n\r\n");
    let sent: Arc<AtomicUsize> = Arc::default();
    let counter = Arc::clone(&sent);
    let task = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(pour(stream, head.clone(), piece, Arc::clone(&counter)));
        }
    });
    let url = format!("http://{address}");
    Pouring { url, sent, task }
}

async fn pour(mut stream: TcpStream, head: String, piece: &[u8], sent: Arc<AtomicUsize>) {
    let mut asked = [0; 4096];
    let _ = stream.read(&mut asked).await;
    let mut next = head.as_bytes();
    while stream.write_all(next).await.is_ok() {
        sent.fetch_add(next.len(), Ordering::Relaxed);
        next = piece;
    }
}

/// A chunk of 64 KiB of white space.
fn chunk() -> &'static [u8] {
    let mut chunk = b"10000\r\n".to_vec();
    chunk.resize(chunk.len() + 0x1_0000, b' ');
    chunk.extend_from_slice(b"\r\n");
    chunk.leak()
}

fn transport() -> Arc<dyn Transport> {
    ReqwestTransports
        .transport(&TransportOptions::default())
        .unwrap()
}

async fn get(
    server: &Pouring,
    limit: Option<usize>,
) -> Result<http::Response<Bytes>, (TransportErrorKind, String)> {
    let mut request = http::Request::get(format!("{}/x", server.url))
        .body(Bytes::new())
        .unwrap();
    if let Some(limit) = limit {
        request.extensions_mut().insert(AnswerLimit(limit));
    }
    let sent = transport().send(request).await;
    sent.map_err(|error| (error.kind, error.message))
}

#[tokio::test]
async fn a_success_longer_than_the_limit_is_refused_by_name_and_not_read_on() {
    for header in [CHUNKED, "Content-Length: 99999999999", "Connection: close"] {
        for limit in [None, Some(100_000)] {
            let piece = if header == CHUNKED {
                chunk()
            } else {
                &[b' '; 65_536][..]
            };
            let server = pouring("200 OK", header, piece).await;
            let (kind, message) = get(&server, limit).await.unwrap_err();
            assert_eq!(
                kind,
                TransportErrorKind::Unacceptable,
                "{header}: {message}"
            );
            let limit = limit.unwrap_or(1 << 20);
            let expected = format!("longer than {limit} bytes");
            assert!(message.contains(&expected), "{header}: {message}");
            let sent = server.sent.load(Ordering::Relaxed);
            assert!(
                sent < limit + ON_ITS_WAY,
                "{header}: {sent} bytes were taken"
            );
        }
    }
}

#[tokio::test]
async fn a_refusal_without_end_is_still_a_refusal() {
    for status in ["404 Not Found", "500 Internal Server Error", "302 Found"] {
        let server = pouring(status, CHUNKED, chunk()).await;
        let answer = get(&server, None).await.unwrap();
        assert_eq!(answer.status().as_str(), &status[..3]);
        assert_eq!(answer.body().len(), 64 << 10, "{status}");
        assert_eq!(answer.headers()["activityid"], "act-7");
        let sent = server.sent.load(Ordering::Relaxed);
        assert!(sent < ON_ITS_WAY, "{status}: {sent} bytes were taken");
    }
}

#[tokio::test]
async fn a_packed_answer_is_not_unpacked() {
    for packing in ["gzip", "br", "zstd", "deflate"] {
        let header = format!("{CHUNKED}\r\nContent-Encoding: {packing}");
        let server = pouring("200 OK", &header, chunk()).await;
        let (kind, message) = get(&server, None).await.unwrap_err();
        assert_eq!(kind, TransportErrorKind::Unacceptable, "{message}");
        assert!(message.contains(packing), "{message}");
    }
    let header = "Content-Length: 65536\r\nContent-Encoding: identity";
    let server = pouring("200 OK", header, &[b' '; 65_536]).await;
    assert_eq!(get(&server, None).await.unwrap().body().len(), 65_536);
}

#[tokio::test]
async fn an_answer_of_just_the_limit_is_taken() {
    let server = pouring("200 OK", "Content-Length: 65536", &[b' '; 65_536]).await;
    assert_eq!(
        get(&server, Some(65_536)).await.unwrap().body().len(),
        65_536
    );
    assert!(get(&server, Some(65_535)).await.is_err());
}

#[tokio::test]
async fn a_tenant_whose_service_never_ends_an_answer_is_told_so_and_others_are_served() {
    let server = pouring("201 Created", CHUNKED, chunk()).await;
    let url = ConfigUrl::parse(&format!("{}/acme", server.url)).unwrap();
    let options = ClientOptions::new(url, Credentials::Token(TOKEN.into()));
    let theirs = Client::new(options, transport(), Clock::system()).unwrap();

    let service = ActionsService::new(Options::new(Clock::system()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(service.clone().serve(listener));
    let url = ConfigUrl::parse(&format!("http://{address}/acme")).unwrap();
    let options = ClientOptions::new(url, Credentials::Token(TOKEN.into()));
    let ours = Client::new(options, transport(), Clock::system()).unwrap();

    let (refused, found) = tokio::join!(theirs.get_scale_set(1), ours.get_scale_set(1));
    assert_eq!(found, Ok(None));
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unreadable);
    assert!(refused.message.contains("limit"), "{refused}");
    serving.abort();
}

#[tokio::test]
async fn a_message_may_be_longer_than_other_answers_and_has_a_limit_too() {
    let service = ActionsService::new(Options::new(Clock::system()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(service.clone().serve(listener));
    let url = ConfigUrl::parse(&format!("http://{address}/acme")).unwrap();
    let options = ClientOptions::new(url, Credentials::Token(TOKEN.into()));
    let client = Client::new(options, transport(), Clock::system()).unwrap();
    let labels = ["ci".to_owned()];
    let set = client.create_scale_set("ci", 1, &labels).await.unwrap();
    let session = client.open_session(set.id, "listener-0").await.unwrap();
    service.queue_job(JobSpec::on("ci"));
    let faults = service.faults();
    faults.next("get_message", Mangling::Long(2));
    let polled = client.get_message(&session, 0, 3).await.unwrap();
    assert!(matches!(polled, Polled::Message(_)), "{polled:?}");
    for mangling in [Mangling::Long(100), Mangling::Packed] {
        faults.next("get_message", mangling);
        let polled = client.get_message(&session, 0, 3).await.unwrap();
        let Polled::Unreadable { problem, .. } = polled else {
            panic!("{polled:?}");
        };
        assert!(problem.contains("the answer is "), "{problem}");
    }
    faults.next("get_scale_set", Mangling::Long(2));
    let error = client.get_scale_set(set.id).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreadable, "{error}");
    serving.abort();
}
