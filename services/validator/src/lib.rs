//! sallyport-validator
