//! The way between listener and service, watched and, if a test wants, bent: what was sent, which
//! secrets went over it, and answers to polls that are not what the service said.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use impresario::actions::{Transport, TransportError, TransportOptions, Transports};
use serde_json::Value;

/// Makes something else of a message.
pub type Bend = Box<dyn Fn(&mut Value) + Send>;

/// Transports that watch those of the service.
pub struct Wire {
    behind: Arc<dyn Transports>,
    books: Arc<Books>,
}

#[derive(Default)]
struct Books {
    polls: Mutex<Vec<Poll>>,
    secrets: Mutex<BTreeSet<String>>,
    bend: Mutex<Option<Bend>>,
    bend_next: Mutex<Option<(&'static str, Bend)>>,
}

/// What a poll told the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poll {
    /// The last message that is done with.
    pub last_message_id: Option<i64>,
    /// Most jobs at one time.
    pub capacity: String,
}

impl Wire {
    pub fn before(behind: Arc<dyn Transports>) -> Arc<Self> {
        Arc::new(Self {
            behind,
            books: Arc::default(),
        })
    }

    /// The last poll.
    pub fn last_poll(&self) -> Poll {
        let polls = self.books.polls.lock().unwrap();
        polls.last().cloned().expect("a poll")
    }

    #[allow(dead_code, reason = "another test uses it")]
    /// Everything that authorized a request, and every token in an answer.
    pub fn secrets(&self) -> BTreeSet<String> {
        self.books.secrets.lock().unwrap().clone()
    }

    /// From now on each message is bent so before it arrives.
    pub fn bend(&self, bend: impl Fn(&mut Value) + Send + 'static) {
        *self.books.bend.lock().unwrap() = Some(Box::new(bend));
    }

    /// The next answer to a request to a path with this ending is bent so.
    pub fn bend_next(&self, path: &'static str, bend: impl Fn(&mut Value) + Send + 'static) {
        *self.books.bend_next.lock().unwrap() = Some((path, Box::new(bend)));
    }

    /// From now on messages arrive as they are.
    pub fn straighten(&self) {
        *self.books.bend.lock().unwrap() = None;
    }
}

impl Transports for Wire {
    fn transport(&self, options: &TransportOptions) -> Result<Arc<dyn Transport>, TransportError> {
        Ok(Arc::new(Watched {
            behind: self.behind.transport(options)?,
            books: self.books.clone(),
        }))
    }
}

struct Watched {
    behind: Arc<dyn Transport>,
    books: Arc<Books>,
}

impl Transport for Watched {
    fn send(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<Bytes>, TransportError>> {
        let poll = self.books.saw(&request);
        let path = request.uri().path().to_owned();
        let books = self.books.clone();
        let answer = self.behind.send(request);
        async move {
            let mut response = answer.await?;
            books.heard(poll, &path, &mut response);
            Ok(response)
        }
        .boxed()
    }
}

impl Books {
    /// Takes note of a request; says whether it is a poll.
    fn saw(&self, request: &Request<Bytes>) -> bool {
        let header = |name: &str| {
            let value = request.headers().get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        if let Some(authorization) = header("authorization") {
            let token = authorization.split(' ').nth(1).unwrap().to_owned();
            self.secrets.lock().unwrap().insert(token);
        }
        let Some(capacity) = header("x-scalesetmaxcapacity") else {
            return false;
        };
        let query = request.uri().query().unwrap_or_default();
        let last = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("lastMessageId="));
        self.polls.lock().unwrap().push(Poll {
            last_message_id: last.map(|id| id.parse().unwrap()),
            capacity,
        });
        true
    }

    fn heard(&self, poll: bool, path: &str, response: &mut Response<Bytes>) {
        let Ok(mut value) = serde_json::from_slice::<Value>(response.body()) else {
            return;
        };
        for key in ["token", "messageQueueAccessToken", "encodedJITConfig"] {
            if let Some(secret) = value[key].as_str() {
                self.secrets.lock().unwrap().insert(secret.to_owned());
            }
        }
        let mut next = self.bend_next.lock().unwrap();
        if let Some((_, bend)) = next.take_if(|(ending, _)| path.ends_with(*ending)) {
            bend(&mut value);
            *response.body_mut() = Bytes::from(value.to_string());
        }
        if poll && let Some(bend) = &*self.bend.lock().unwrap() {
            bend(&mut value);
            *response.body_mut() = Bytes::from(value.to_string());
        }
    }
}
