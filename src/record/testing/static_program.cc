// Linked statically: what the trace unit cannot be preloaded into.
int main() { return 0; }
