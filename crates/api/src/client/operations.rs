//! Operations and assets.

use bytes::Bytes;
use catena_value::{NoCells, Value};
use hyper::Method;

use super::transport::Transport;
use super::{Client, ClientResult};
use crate::wire::{encode_path, encode_query};

impl<T: Transport> Client<T> {
    /// Every operation of the venue's catalogue.
    pub async fn operations(&self) -> ClientResult<Vec<Value>, T> {
        let list = self.fetch_json(self.request(Method::GET, "/operations")).await?;
        let list =
            list.as_vector().ok_or_else(|| self.malformed("the catalogue is not an array"))?;
        Ok(list.iter(&NoCells).flatten().collect())
    }

    /// One operation, by any form of reference.
    pub async fn operation(&self, reference: &str) -> ClientResult<Value, T> {
        let path = format!("/operations/{}", encode_path(reference));
        self.fetch_json(self.request(Method::GET, &path)).await
    }

    /// Gives a definition a name, as a new version if the name exists. `share` says who else may use
    /// it. Returns `{name, version, id}`.
    pub async fn put_operation(
        &self,
        name: &str,
        metadata: &Value,
        share: Option<&str>,
    ) -> ClientResult<Value, T> {
        let mut path = format!("/operations/{}", encode_path(name));
        if let Some(share) = share {
            path += &format!("?share={}", encode_query(share));
        }
        self.fetch_json(self.request(Method::PUT, &path).with_json(metadata)?).await
    }

    /// Removes a name.
    pub async fn remove_operation(&self, name: &str) -> ClientResult<Value, T> {
        let path = format!("/operations/{}", encode_path(name));
        self.fetch_json(self.request(Method::DELETE, &path)).await
    }

    /// Registers an asset by the JSON text of its metadata. Returns its ID as the venue wrote it.
    pub async fn register(&self, metadata: Bytes) -> ClientResult<String, T> {
        let request = self.request(Method::POST, "/assets").with_body(metadata);
        let id = self.fetch_json(request).await?;
        let id = id.as_str().ok_or_else(|| self.malformed("the asset ID is not a string"))?;
        Ok(id.to_owned())
    }
}
