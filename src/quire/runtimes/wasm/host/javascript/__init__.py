"""JavaScript in WebAssembly: QuickJS, with a prelude of ours, frozen once it is ready to run cells."""
