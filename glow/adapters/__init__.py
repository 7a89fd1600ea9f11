"""GLOW for frameworks: LangChain, LlamaIndex, Haystack and MCP, each in a module that needs its package, all over `glow.client`."""

from glow.adapters.store import FoundText, GlowStore

__all__ = ["FoundText", "GlowStore"]
