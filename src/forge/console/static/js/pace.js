// When to work on what is said often. Nothing is begun any more once the page is left.

/** Once it is quiet: for what somebody is typing. */
export function settled(work, pause, scope) {
    let timer = 0;
    return () => {
        clearTimeout(timer);
        timer = setTimeout(() => scope.isOpen() && work(), pause);
    };
}

/** A little later, and again if it was asked for meanwhile; however often it is asked for, it does come. */
export function soon(work, pause, scope) {
    let isGoing = false;
    let isWanted = false;
    return async () => {
        isWanted = true;
        if (isGoing) return;
        isGoing = true;
        try {
            while (isWanted && scope.isOpen()) {
                await new Promise((done) => setTimeout(done, pause));
                isWanted = false;
                if (scope.isOpen()) await work();
            }
        } finally {
            isGoing = false;
        }
    };
}
