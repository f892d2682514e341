//! sallyport-tests
