//! sallyport-cli
