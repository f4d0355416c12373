"""Forge: the same tool, without `reconcile`."""

from __future__ import annotations

from chaos.crashes.systems.forge_worker import prepare as prepare
from chaos.crashes.systems.forge_worker import version as version
from chaos.crashes.systems.forge_worker import work
from chaos.crashes.systems.order import Order


async def main(order: Order) -> None:
    await work(order, reconciles=False)
