"""The flags of SGLang 0.5.23's server that slime reads or the pack sets, with their types and defaults."""


class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        for name in ("dp", "pp", "ep", "moe-dp", "tp"):
            parser.add_argument(f"--{name}-size", type=int, default=1)
        parser.add_argument("--mem-fraction-static", type=float, default=None)
        parser.add_argument("--context-length", type=int, default=None)
        parser.add_argument("--enable-dp-attention", action="store_true")
