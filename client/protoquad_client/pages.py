"""Lists that come in pages, as one iterable each. A page is asked for when its first item is."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Generic

from protoquad_client.answers import Item, Page


class Pages(Generic[Item]):
    """All items, page after page; each `for` asks anew."""

    def __init__(self, get_page: Callable[[str | None], Page[Item]]) -> None:
        self._get_page = get_page

    def __iter__(self) -> Iterator[Item]:
        for page in self.pages():
            yield from page.items

    def pages(self) -> Iterator[Page[Item]]:
        page = self.first()
        yield page
        while page.next is not None:
            page = self._get_page(page.next)
            yield page

    def first(self) -> Page[Item]:
        """The first page; of classes, shots and samples it has the `total`."""
        return self._get_page(None)


class AsyncPages(Generic[Item]):
    """All items, page after page; each `async for` asks anew."""

    def __init__(self, get_page: Callable[[str | None], Awaitable[Page[Item]]]) -> None:
        self._get_page = get_page

    async def __aiter__(self) -> AsyncIterator[Item]:
        async for page in self.pages():
            for item in page.items:
                yield item

    async def pages(self) -> AsyncIterator[Page[Item]]:
        page = await self.first()
        yield page
        while page.next is not None:
            page = await self._get_page(page.next)
            yield page

    async def first(self) -> Page[Item]:
        """The first page; of classes, shots and samples it has the `total`."""
        return await self._get_page(None)
