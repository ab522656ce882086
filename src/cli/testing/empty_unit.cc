// A preloaded library that does nothing: stands in for the trace unit where a test program carries
// a fake one itself.
