//! sallyport-mutator
